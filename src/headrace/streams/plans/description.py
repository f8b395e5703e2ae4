"""What a checkpoint depends on: the sources, in their order, and the operators that keep state.

    Description
    ├── sources          topics, in the order in which Spark numbers its sources
    ├── operators        what keeps state, from the sources up
    │   ├── keys         what state is kept by
    │   ├── state        what is kept: aggregates, or the columns of a join's sides
    │   └── settings     what else decides what is kept: for how long, how much of it
    ├── shuffle_partition_count, output_mode
    └── watermarks       how long operators wait for late rows, by column

A part has three texts. `text` is for people: `sum(amount)`. `typed` has the types of its columns, because
they decide the layout of the state. `definition` follows each column down to the topics' own, through all
projections, so that a window of another length, or a key that is made in another way, is seen.

Operators of this package are functions that keep bytes to Spark; they describe themselves. Which of them an
operator of the plan is, the plan tells by the name of a column that the operator makes.

All of them are texts that stay the same from session to session. Long definitions are kept as digests.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any, Final

from headrace.streams.buckets.plan_column import operator_of
from headrace.streams.plans.lineage import Lineage, output_of, trace
from headrace.streams.plans.tree import Node, Rendering, type_text

DEFINITION_LENGTH_MAX: Final = 160
"""A longer one is kept as a digest."""

OPERATORS: Final = {
    "Aggregate": "aggregate",
    "Deduplicate": "dropDuplicates",
    "DeduplicateWithinWatermark": "dropDuplicatesWithinWatermark",
    "FlatMapGroupsInPandasWithState": "applyInPandasWithState",
    "GlobalLimit": "limit",
    "Join": "join of two streams",
    "TransformWithStateInPandas": "transformWithStateInPandas",
    "TransformWithStateInPySpark": "transformWithState",
}
"""Operators that keep state, by Spark's name, as a user writes them."""
_DIGEST: Final = "sha256:"
_KEY_FIELDS: Final = ("groupingExpressions", "keys", "groupingAttributes", "condition")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A key, or something that is kept."""

    text: str
    typed: str
    definition: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """Something that keeps state."""

    kind: str
    keys: tuple[Part, ...]
    state: tuple[Part, ...]
    settings: Mapping[str, str] = field(default_factory=dict)
    """What its state was made for, in words, by name; empty where nobody has said."""

    def __str__(self) -> str:
        by = f" by {', '.join(key.text for key in self.keys)}" if self.keys else ""
        return f"{self.kind}{by}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """What a checkpoint depends on."""

    sources: tuple[str, ...]
    operators: tuple[Operator, ...]
    shuffle_partition_count: int
    output_mode: str
    watermarks: Mapping[str, str]

    @property
    def drops_late_rows(self) -> bool:
        """Whether an operator may leave rows out that come behind the watermark."""
        return any(_drops_late_rows(operator, self.watermarks) for operator in self.operators)

    def to_json(self) -> dict[str, Any]:
        """As it is kept."""
        return asdict(self)

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Description:
        """What `to_json` gave."""
        return cls(
            sources=tuple(kept["sources"]),
            operators=tuple(
                Operator(
                    kind=operator["kind"],
                    keys=tuple(Part(**part) for part in operator["keys"]),
                    state=tuple(Part(**part) for part in operator["state"]),
                    settings=dict(operator.get("settings", {})),
                )
                for operator in kept["operators"]
            ),
            shuffle_partition_count=int(kept["shuffle_partition_count"]),
            output_mode=str(kept["output_mode"]),
            watermarks=dict(kept["watermarks"]),
        )


def describe(  # noqa: PLR0913 - each is what a checkpoint depends on, given by name
    plan: Node,
    optimized: Node,
    *,
    columns: Mapping[int, str],
    sources: Sequence[str],
    shuffle_partition_count: int,
    output_mode: str,
    watermarks: Mapping[str, str],
    own: Mapping[str, Operator] = MappingProxyType({}),
) -> Description:
    """Describe a plan. `columns` are the topics' own, by the session's numbers.

    `own` are operators that keep their state in Python, by name, as they describe themselves.
    The optimized plan tells which columns a join has to keep: those that are used above it.
    """
    lineage = trace(plan, columns)
    joins = [_sides(node) for node in _bottom_up(optimized) if _is_stateful(node) and node.kind == "Join"]
    operators = [
        own.get(_own_name(node))
        or _operator(node, lineage, joins.pop(0) if node.kind == "Join" and joins else ())
        for node in _bottom_up(plan)
        if _is_stateful(node)
    ]
    return Description(
        sources=tuple(sources),
        operators=tuple(operators),
        shuffle_partition_count=shuffle_partition_count,
        output_mode=output_mode,
        watermarks=dict(watermarks),
    )


def _drops_late_rows(operator: Operator, columns: Collection[str]) -> bool:
    """Aggregates and the like do so only if their key is made of the event time."""
    if operator.kind not in {"aggregate", "dropDuplicates", "limit"}:
        return bool(columns)
    return any(
        # A digest does not tell what it is made of.
        f"{column}:" in key.definition or key.definition.startswith(_DIGEST)
        for key in operator.keys
        for column in columns
    )


def _bottom_up(node: Node) -> Iterator[Node]:
    for child in node.children:
        yield from _bottom_up(child)
    yield node


def _is_streaming(node: Node) -> bool:
    return any(each.kind.startswith("StreamingRelation") for each in node.walk())


def _is_stateful(node: Node) -> bool:
    """A join keeps state only if both of its sides are streams; state that others begin with is none."""
    of_children = all if node.kind == "Join" else any
    return node.kind in OPERATORS and of_children(_is_streaming(child) for child in node.children)


def _operator(node: Node, lineage: Lineage, sides: Sequence[Node]) -> Operator:
    keys = [key for field in _KEY_FIELDS for key in _field(node, field)]
    kept = list(sides) if node.kind == "Join" else list(_aggregates(node))
    state = {part.definition: part for part in (_part(each, lineage) for each in kept)}
    kind = OPERATORS[node.kind]
    if node.kind == "Join":
        kind = f"{_object_name(node.fields.get('joinType')).lower()} {kind}"
    own = _own_state(node)
    return Operator(kind=kind, keys=tuple(_part(key, lineage) for key in keys), state=(*state.values(), *own))


def _own_name(node: Node) -> str:
    """The name of an operator of this package; empty where it is another."""
    names = (operator_of(column.name) for column in node.expressions("outputAttrs"))
    return next((name for name in names if name is not None), "")


def _field(node: Node, field: str) -> tuple[Node, ...]:
    one = node.expression(field)
    return (one,) if one is not None else node.expressions(field)


def _aggregates(node: Node) -> Iterator[Node]:
    for expression in node.expressions("aggregateExpressions"):
        yield from (each for each in expression.walk() if each.kind == "AggregateExpression")


def _own_state(node: Node) -> Iterator[Part]:
    """The state that a Python function declares."""
    declared = node.fields.get("stateType")
    if declared is not None:
        text = type_text(declared)
        yield Part(text="its state", typed=text, definition=_short(text))


def _sides(node: Node) -> tuple[Node, ...]:
    """The columns of both sides of a join, as far as the optimizer has left any."""
    return tuple(column for child in node.children for column in output_of(child))


def _part(expression: Node, lineage: Lineage) -> Part:
    definition = _short(lineage.definition(expression))
    if expression.kind == "Alias":
        # A column that is made below a join: its name says enough, and what it is made of tells its type.
        return Part(text=expression.name, typed=definition, definition=definition)
    text, typed = Rendering({}).text(expression), Rendering({}, typed=True).text(expression)
    return Part(text=text, typed=_short(typed), definition=definition)


def _short(text: str) -> str:
    if len(text) <= DEFINITION_LENGTH_MAX:
        return text
    return f"{_DIGEST}{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def _object_name(value: object) -> str:
    """`Inner` of {"object": "org...Inner$"}."""
    told = value.get("object", value.get("product-class", "")) if isinstance(value, Mapping) else value
    return str(told).rpartition(".")[2].rstrip("$")
