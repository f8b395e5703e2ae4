"""Spark's plans as trees of plain values, read from the JSON that Spark writes of them. No Spark in here.

Spark flattens a tree into a list: each node, in front of its children, with `num-children`. A field holds a
scalar, the number of a child, an expression (a flattened tree of its own) or a list of expressions.

Attributes are told apart by numbers that Spark hands out anew in each session, so nothing that is kept may
hold one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

_SYMBOLS: Final = {
    "Add": "+",
    "And": "AND",
    "Divide": "/",
    "EqualNullSafe": "<=>",
    "EqualTo": "=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "Multiply": "*",
    "Or": "OR",
    "Remainder": "%",
    "Subtract": "-",
}
_NAMES: Final = {"Average": "avg", "GetStructField": "field", "CreateNamedStruct": "struct"}
_TRANSPARENT: Final = {"AggregateExpression", "Alias"}
"""Expressions that only wrap another."""
_SILENT_FIELDS: Final = {
    "class",
    "num-children",
    "exprId",
    "resultId",
    "qualifier",
    "metadata",
    "nullable",
    "nonInheritableMetadataKeys",
    "mode",
    "ansiEnabled",
    "hideSeed",
    "timeZoneId",
    "evalType",
    "udfDeterministic",
}
"""What is not part of an expression's meaning, or is the session's."""


@dataclass(frozen=True, slots=True)
class Node:
    """An operator of a plan, or an expression."""

    kind: str
    """Spark's class, without its package."""
    fields: Mapping[str, Any]
    children: tuple[Node, ...]

    def walk(self) -> Iterator[Node]:
        """This node and all below it, parents first."""
        yield self
        for child in self.children:
            yield from child.walk()

    @property
    def attribute_id(self) -> int | None:
        """The session's number of the attribute that this is, or that this names."""
        found = self.fields.get("exprId")
        return found["id"] if isinstance(found, Mapping) else None

    @property
    def name(self) -> str:
        """The attribute's or alias's name."""
        return str(self.fields.get("name", ""))

    def expression(self, name: str) -> Node | None:
        """The field's expression; None if it has none."""
        value: Any = self.fields.get(name)
        return read_tree(value) if _is_tree(value) else None

    def expressions(self, name: str) -> tuple[Node, ...]:
        """The field's expressions, of lists of lists as well."""
        return tuple(_expressions(self.fields.get(name)))


def read_plan(text: str) -> Node:
    """The tree of what Spark's `toJSON` gave."""
    return read_tree(json.loads(text))


def read_tree(flat: Sequence[Mapping[str, Any]]) -> Node:
    """The tree of a flattened one."""
    nodes = iter(flat)

    def read() -> Node:
        fields = next(nodes)
        children = tuple(read() for _ in range(fields["num-children"]))
        return Node(kind=fields["class"].rpartition(".")[2], fields=fields, children=children)

    return read()


def _is_tree(value: object) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict) and "class" in value[0]


def _expressions(value: object) -> Iterator[Node]:
    if _is_tree(value):
        assert isinstance(value, list)
        yield read_tree(value)
    elif isinstance(value, list):
        for member in value:
            yield from _expressions(member)


def type_text(kind: object) -> str:
    """A data type as Spark's JSON has it, in DDL: `struct<a: string, b: array<int>>`."""
    if isinstance(kind, str):
        return kind
    if isinstance(kind, Mapping) and kind.get("type") == "struct":
        fields = (f"{field['name']}: {type_text(field['type'])}" for field in kind["fields"])
        return f"struct<{', '.join(fields)}>"
    if isinstance(kind, Mapping) and kind.get("type") == "array":
        return f"array<{type_text(kind['elementType'])}>"
    if isinstance(kind, Mapping) and kind.get("type") == "map":
        return f"map<{type_text(kind['keyType'])}, {type_text(kind['valueType'])}>"
    return json.dumps(kind, sort_keys=True)


@dataclass(slots=True)
class Rendering:
    """Expressions as text. `attributes` says how an attribute is written where its name won't do."""

    attributes: Mapping[int, str]
    typed: bool = False
    """Whether attributes are written with their types."""
    variables: dict[str, str] = field(default_factory=dict)
    """The variables of lambda functions that were met so far, renamed."""

    def text(self, node: Node) -> str:
        """The expression, the same in each session."""
        if node.kind in _TRANSPARENT:
            return self._wrapped(node)
        if node.kind == "AttributeReference":
            return self._attribute(node)
        if node.kind == "NamedLambdaVariable":
            # Spark counts the names of variables up from session to session.
            return self.variables.setdefault(node.name, f"v{len(self.variables)}")
        if node.kind == "Literal":
            value, kind = node.fields.get("value"), type_text(node.fields.get("dataType"))
            return repr(value) if kind == "string" else str(value)
        parts = [self.text(child) for child in node.children]
        if node.kind in _SYMBOLS and len(parts) == 2:
            return f"({parts[0]} {_SYMBOLS[node.kind]} {parts[1]})"
        return f"{_function_name(node)}({', '.join([*parts, *_scalars(node)])})"

    def _wrapped(self, node: Node) -> str:
        inner = self.text(node.children[0])
        if node.fields.get("isDistinct"):
            inner = f"distinct {inner}"
        if len(node.children) > 1:
            inner = f"{inner} where {self.text(node.children[1])}"
        return inner

    def _attribute(self, node: Node) -> str:
        known = self.attributes.get(node.attribute_id if node.attribute_id is not None else -1)
        if known is not None:
            return known
        return f"{node.name}: {type_text(node.fields.get('dataType'))}" if self.typed else node.name


def _function_name(node: Node) -> str:
    if node.kind == "PythonUDF":
        return node.name
    if node.kind in _NAMES:
        return _NAMES[node.kind]
    words = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in node.kind)
    return words.removeprefix("_")


def _scalars(node: Node) -> list[str]:
    """What else is said about a function: `1 minute` of a window, the type of a cast."""
    told = []
    for name, value in node.fields.items():
        if name in _SILENT_FIELDS or (node.kind == "PythonUDF" and name == "name"):
            continue
        if name == "dataType":
            told.append(type_text(value))
        elif isinstance(value, bool | float | str) or (
            isinstance(value, int) and not 0 <= value < len(node.children)
        ):
            told.append(str(value))
    return told
