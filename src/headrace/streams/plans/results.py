"""How the results of a pipeline are to be compared: as rows, or as the last one of each key.

An aggregate writes a key's result again whenever it changes, and a computation in batch gives the last one
only. Which columns make the key is followed from the aggregate up to what the pipeline returns, through
projections and filters. A window is told by its start and its end as well. Where that way ends, at a join
or at rows that are taken apart, all that can be said is that the last results must be among those that were
written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Literal

from headrace.streams.plans.lineage import Lineage, output_of, trace
from headrace.streams.plans.tree import Node

_TRANSPARENT: Final = {
    "SubqueryAlias",
    "View",
    "EventTimeWatermark",
    "RepartitionByExpression",
    "Repartition",
}
_ROW_BY_ROW: Final = {"Project", "Filter", "Generate", "SubqueryAlias", "View", "EventTimeWatermark"}
_WINDOW_FIELDS: Final = {"start", "end"}

IDENTITY_KEY: Final = "headrace.identity"
"""In a column's metadata: results are told apart by it, and by so many columns in all."""
FIRING_KEY: Final = "headrace.firing"
"""In a column's metadata: it says when a result was given, which is not part of the result."""

REMOVED_KEY: Final = "headrace.removed"
"""In a column's metadata: where it has this value, there is no result of that key any more."""

CORRECTED_KEY: Final = "headrace.corrected"
"""In the metadata of columns that results are told apart by: how many versions there were does not count."""

TOLD_BESIDE_KEY: Final = "headrace.told-beside"
"""In a column's metadata: it says how a version of a result came about, which is not part of the result."""

AWAITED_KEY: Final = "headrace.awaited"
"""In a column's metadata: some of the rows were given when time had come so far that nothing could change."""

UPDATES_NAME: Final = "headrace_updates"
"""The name of a column whose rows are updates: how many there are depends on which rows came together."""

Marks = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """How to compare what a plan gives."""

    way: Literal["rows", "latest", "contained"]
    identity: tuple[str, ...] = ()
    """`latest`: the columns of the key."""
    is_filtered: bool = False
    """`latest`: whether results are left out by what they are."""
    uncertain: dict[str, frozenset[str]]
    """Columns that can't be computed a second time, and the functions that are to blame."""
    uncertain_rows: frozenset[str]
    """Functions because of which not even the rows can be."""
    approximate: tuple[str, ...] = ()
    """Columns whose last digits don't count."""
    removed: str | None = None
    """`latest`: the column that says that the key has no result any more."""
    removed_value: str = "true"
    """What it says then, as JSON."""
    is_windowed: bool = False
    """Whether they are given when windows of ours end, or the intervals of joins."""


def results_of(plan: Node, columns: dict[int, str], marks: Marks = MappingProxyType({})) -> Results:
    """How to compare what the plan gives.

    `columns` are those of the topics, by the session's numbers; `marks` the metadata of the plan's own.
    """
    lineage = trace(plan, columns)
    uncertain = {
        column.name: causes for column in output_of(plan) if (causes := _column_causes(column, lineage))
    }
    rows = frozenset(lineage.uncertain_rows)
    if identity := _told_identity(marks):
        return _told_results(plan, identity, marks, uncertain, rows)
    rows |= _updates(plan)
    if not any(node.kind == "Aggregate" and _is_fed(node, columns) for node in plan.walk()):
        is_awaited = any(told.get(AWAITED_KEY) for told in marks.values())
        return Results(way="rows", uncertain=uncertain, uncertain_rows=rows, is_windowed=is_awaited)
    keys, is_filtered = _keys(plan, lineage, columns)
    if keys is None:
        return Results(way="contained", uncertain=uncertain, uncertain_rows=rows)
    return Results(
        way="latest", identity=keys, is_filtered=is_filtered, uncertain=uncertain, uncertain_rows=rows
    )


def _told_results(
    plan: Node,
    identity: tuple[str, ...],
    marks: Marks,
    uncertain: dict[str, frozenset[str]],
    rows: frozenset[str],
) -> Results:
    """Of what an operator of ours gives that says what its results are told apart by."""
    is_corrected = all(marks[name].get(CORRECTED_KEY) for name in identity)
    firing, beside = (_marked(marks, key) for key in (FIRING_KEY, TOLD_BESIDE_KEY))
    uncertain |= dict.fromkeys(firing, frozenset({"hr.window, by when a result was given,"}))
    uncertain |= dict.fromkeys(beside, frozenset({"hr.corrected, by which rows came together,"}))
    removed = next(iter(_marked(marks, REMOVED_KEY)), None)
    return Results(
        way="latest",
        identity=identity,
        # Results that were corrected are left out because they are withdrawn, which is told.
        is_filtered=not is_corrected and any(node.kind == "Filter" for node in _down_to_operator(plan)),
        uncertain=uncertain,
        uncertain_rows=rows if is_corrected else rows | _updates(plan),
        removed=removed,
        removed_value="false" if removed and marks[removed][REMOVED_KEY] == "false" else "true",
        is_windowed=bool(firing),
    )


def _marked(marks: Marks, key: str) -> list[str]:
    return [name for name, told in marks.items() if told.get(key)]


def _updates(plan: Node) -> frozenset[str]:
    named = (
        column.name
        for node in plan.walk()
        for name in ("projectList", "windowExpressions")
        for column in node.expressions(name)
        if column.kind == "Alias"
    )
    return frozenset({"hr.recent, by which rows came together,"}) if UPDATES_NAME in named else frozenset()


def _told_identity(marks: Marks) -> tuple[str, ...]:
    """The columns that an operator of ours says to tell its results apart by, if they are all there."""
    names = tuple(name for name, told in marks.items() if told.get(IDENTITY_KEY))
    return names if names and marks[names[0]][IDENTITY_KEY] == len(names) else ()


def _down_to_operator(plan: Node) -> Iterator[Node]:
    while plan.kind in {"Project", "Filter"} | _TRANSPARENT:
        yield plan
        plan = plan.children[0]


def _column_causes(column: Node, lineage: Lineage) -> frozenset[str]:
    number = column.attribute_id
    return lineage.uncertain.get(number, frozenset()) if number is not None else lineage.causes(column)


def _is_fed(node: Node, columns: dict[int, str]) -> bool:
    """Whether rows of a topic reach it."""
    return any(column.attribute_id in columns for each in node.walk() for column in output_of(each))


def _keys(plan: Node, lineage: Lineage, columns: dict[int, str]) -> tuple[tuple[str, ...] | None, bool]:
    """The columns that make the key, None if they are not all there; and whether results are filtered."""
    path, node, is_filtered = [], plan, False
    while node.kind in {"Project", "Filter"} | _TRANSPARENT:
        path.append(node)
        is_filtered = is_filtered or node.kind == "Filter"
        node = node.children[0]
    if node.kind != "Aggregate" or not _is_fed(node, columns):
        return None, is_filtered
    wanted = node.expressions("groupingExpressions")
    known = _keys_of_aggregate(node, lineage)
    for each in reversed(path):
        if each.kind == "Project":
            known = _through(each, known)
    names = {
        column.name: known[number] for column in output_of(plan) if (number := column.attribute_id) in known
    }
    if set(names.values()) != set(range(len(wanted))):
        return None, is_filtered
    return tuple(names), is_filtered


def _keys_of_aggregate(node: Node, lineage: Lineage) -> dict[int | None, int]:
    """Which of the aggregate's results are keys, and which."""
    definitions = [lineage.definition(key) for key in node.expressions("groupingExpressions")]
    known = {}
    for column in node.expressions("aggregateExpressions"):
        definition = lineage.definition(column)
        if definition in definitions:
            known[column.attribute_id] = definitions.index(definition)
    return known


def _through(project: Node, known: dict[int | None, int]) -> dict[int | None, int]:
    above = {}
    for column in project.expressions("projectList"):
        made = column.children[0] if column.kind == "Alias" else column
        if made.kind == "GetStructField" and made.fields.get("name") in _WINDOW_FIELDS:
            made = made.children[0]
        if made.kind == "AttributeReference" and made.attribute_id in known:
            above[column.attribute_id] = known[made.attribute_id]
    return above


def is_row_by_row(plan: Node) -> bool:
    """Whether each row is treated by itself, so that the log can be taken in pieces."""
    return all(node.kind in _ROW_BY_ROW or not node.children for node in plan.walk())
