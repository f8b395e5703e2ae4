"""Where the columns of a plan come from, and which of them can't be had a second time.

`trace` follows every attribute down to the columns of the topics. A column is uncertain when a function
that gives another value each time, or one that depends on the order in which rows came, had a part in it;
rows are uncertain when such a value decides which rows there are, or what they are grouped by.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from headrace.streams.plans.tree import Node, Rendering

INLINE_LENGTH_MAX: Final = 400
"""A longer definition goes into others as a digest, so that they don't grow without end."""

UNCERTAIN: Final = {
    "CurrentDate": "current_date",
    "CurrentTime": "current_time",
    "CurrentTimestamp": "current_timestamp",
    "InputFileName": "input_file_name",
    "LocalTimestamp": "localtimestamp",
    "MonotonicallyIncreasingID": "monotonically_increasing_id",
    "Now": "now",
    "Rand": "rand",
    "Randn": "randn",
    "RandStr": "randstr",
    "Shuffle": "shuffle",
    "SparkPartitionID": "spark_partition_id",
    "Uniform": "uniform",
    "Uuid": "uuid",
}
"""Functions that give another value each time, by Spark's name."""
ORDERED: Final = {
    "AnyValue": "any_value",
    "CollectList": "collect_list",
    "CollectSet": "collect_set",
    "First": "first",
    "Last": "last",
}
"""Aggregates that depend on the order of rows; not over a window, which has an order of its own."""
_ROW_FIELDS: Final = ("condition", "groupingExpressions", "keys", "groupingAttributes", "generator")
"""What decides which rows there are."""
_LIST_FIELDS: Final = ("projectList", "aggregateExpressions", "windowExpressions")


@dataclass(slots=True)
class Lineage:
    """What is known of each attribute, by the session's number."""

    definitions: dict[int, str]
    uncertain: dict[int, frozenset[str]] = field(default_factory=dict)
    uncertain_rows: set[str] = field(default_factory=set)
    """Functions that decide which rows there are, or what they are grouped by."""

    def definition(self, expression: Node) -> str:
        """The expression in terms of the topics' columns."""
        known = self.definitions.get(expression.attribute_id if expression.attribute_id is not None else -1)
        if known is not None:
            return known
        return Rendering(self.definitions, typed=True).text(expression)

    def causes(self, expression: Node) -> frozenset[str]:
        """The functions that make the expression's value uncertain."""
        found = set(self.uncertain.get(expression.attribute_id or -1, ()))
        if expression.kind in UNCERTAIN:
            found.add(UNCERTAIN[expression.kind])
        if expression.kind in ORDERED:
            found.add(f"{ORDERED[expression.kind]}, which depends on the order of rows,")
        if expression.kind == "PythonUDF" and not expression.fields.get("udfDeterministic", True):
            found.add(f"the Python function {expression.name}, which is marked as non-deterministic,")
        for child in expression.children:
            found |= (
                self._window_causes(child) if expression.kind == "WindowExpression" else self.causes(child)
            )
        return frozenset(found)

    def _window_causes(self, expression: Node) -> frozenset[str]:
        return frozenset(cause for cause in self.causes(expression) if "order of rows" not in cause)


def trace(plan: Node, columns: Mapping[int, str]) -> Lineage:
    """Follow the attributes of the plan down to the topics' columns."""
    lineage = Lineage(definitions=dict(columns))
    _trace(plan, lineage, frozenset(columns))
    return lineage


def _trace(node: Node, lineage: Lineage, columns: frozenset[int]) -> None:
    for child in node.children:
        _trace(child, lineage, columns)
    for name in _ROW_FIELDS:
        one = node.expression(name)
        for expression in (one,) if one is not None else node.expressions(name):
            lineage.uncertain_rows |= lineage.causes(expression)
    for name in _LIST_FIELDS:
        for expression in node.expressions(name):
            if expression.kind == "Alias":
                _define(expression, lineage.definition(expression), lineage, columns)
                _doubt(expression, lineage.causes(expression), lineage)
    if node.kind == "Generate":
        _generated(node, lineage, columns)
    elif node.kind == "Expand":
        _expanded(node, lineage, columns)
    elif node.kind in {"Deduplicate", "DeduplicateWithinWatermark"}:
        _deduplicated(node, lineage)


def _define(attribute: Node, text: str, lineage: Lineage, columns: frozenset[int]) -> None:
    number = attribute.attribute_id
    # What lies below the topics' columns is ours: how records are decoded is not part of a pipeline.
    if number is not None and number not in columns:
        if len(text) > INLINE_LENGTH_MAX:
            text = f"sha256:{hashlib.sha256(text.encode()).hexdigest()[:32]}"
        lineage.definitions[number] = text


def _doubt(attribute: Node, causes: frozenset[str], lineage: Lineage) -> None:
    if causes and attribute.attribute_id is not None:
        lineage.uncertain[attribute.attribute_id] = causes


def _generated(node: Node, lineage: Lineage, columns: frozenset[int]) -> None:
    generator = node.expression("generator")
    if generator is None:
        return
    made, causes = lineage.definition(generator), lineage.causes(generator)
    for attribute in node.expressions("generatorOutput"):
        _define(attribute, f"{made}.{attribute.name}", lineage, columns)
        _doubt(attribute, causes, lineage)


def _expanded(node: Node, lineage: Lineage, columns: frozenset[int]) -> None:
    """Each row several times, as for windows that overlap: each attribute is made in several ways."""
    output = node.expressions("output")
    projections = node.expressions("projections")
    for index, attribute in enumerate(output):
        ways = [lineage.definition(each) for each in projections[index :: len(output)]]
        if attribute.attribute_id not in lineage.definitions:
            _define(attribute, " or ".join(ways), lineage, columns)


def _deduplicated(node: Node, lineage: Lineage) -> None:
    keys = {key.attribute_id for key in node.expressions("keys")}
    for attribute in output_of(node.children[0]):
        if attribute.attribute_id not in keys:
            cause = frozenset({"dropDuplicates, which keeps the row that came first,"})
            _doubt(attribute, cause | lineage.causes(attribute), lineage)


def output_of(node: Node) -> tuple[Node, ...]:
    """The attributes, or the expressions that name them, that the operator gives, as far as it says so."""
    for name in ("projectList", "aggregateExpressions", "output"):
        if name in node.fields:
            return node.expressions(name)
    made = node.expressions("generatorOutput") + node.expressions("windowExpressions")
    below = node.children if node.kind == "Join" else node.children[:1]
    return tuple(each for child in below for each in output_of(child)) + made
