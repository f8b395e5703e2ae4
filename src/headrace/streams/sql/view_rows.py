"""What a view makes of the tables that it reads, as shapes.py tells, on streams and in batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

from headrace.errors import SqlError
from headrace.streams.aggregate import aggregate
from headrace.streams.changelog.zset import CHANGED_AT, WEIGHT
from headrace.streams.changes import changes, upserts
from headrace.streams.plans.results import IDENTITY_KEY
from headrace.streams.sinks.records import JSON_OPTIONS
from headrace.streams.sql.analysis import (
    analyse_on,
    can_stream,
    operators_of,
    subqueries_of,
    uncertain_functions,
)
from headrace.streams.sql.clauses import Clauses, WindowCall, window_call
from headrace.streams.sql.definitions import View, key_columns
from headrace.streams.sql.frames import taken_apart, timeless
from headrace.streams.sql.qualified import unqualified
from headrace.streams.sql.shapes import (
    KEY_COLUMN,
    Shape,
    aggregate_items,
    check_aliases,
    group_items,
    shape_of,
    window_part,
)
from headrace.streams.sql.tokens import name_text
from headrace.streams.topic import CHANGE_COLUMN, METADATA_COLUMN
from headrace.streams.window import window
from headrace.streams.windows.kinds import Kind, hopping, session_window, tumbling

_BY_ROW: Final = {
    "Project",
    "Filter",
    "Generate",
    "SubqueryAlias",
    "View",
    "EventTimeWatermark",
    "Union",
    "WithCTE",
    "CTERelationDef",
    "CTERelationRef",
}
_GROUP: Final = "_group_"
_FIRING: Final = "firing"

Frames = Mapping[str, DataFrame]


def view_rows(view: View, frames: Frames) -> DataFrame:
    """The rows that the view writes. `frames` are its tables by name, as pipelines are given them."""
    tables = {table.name: taken_apart(frames[table.name], table) for table in view.tables}
    shape = shape_of(view)
    if shape.clauses is not None and shape.clauses.groups:
        check_aliases(view, shape.clauses, _selected(view, shape.clauses, tables).columns)
    _refuse_moving(view, shape, tables)
    made = _MAKERS[shape.kind](view, shape, tables)
    _check_key(view, shape, made)
    if shape.record_key == KEY_COLUMN:
        made = _by_one_key(made, shape)
    return made.drop(METADATA_COLUMN)


def _by_one_key(made: DataFrame, shape: Shape) -> DataFrame:
    """The rows with a key of one column, by which they are then told apart: a group's columns may be null."""
    key = F.to_json(F.struct(*map(name_text, shape.key)), JSON_OPTIONS)
    is_noted = any(IDENTITY_KEY in made.schema[name].metadata for name in shape.key)
    for name in shape.key:
        notes = {note: told for note, told in made.schema[name].metadata.items() if note != IDENTITY_KEY}
        made = made.withMetadata(name, notes)
    made = made.withColumn(KEY_COLUMN, key)
    return made.withMetadata(KEY_COLUMN, {IDENTITY_KEY: 1}) if is_noted else made


def _rows(view: View, _shape: Shape, tables: Frames) -> DataFrame:
    made = _analysed(view, view.query, tables)
    others = operators_of(made) - _BY_ROW
    if "Aggregate" in others:
        raise SqlError(
            f"view {view.name} adds up rows in a way that can't stay right as they come: group them, in the "
            "outermost query, or use hr.window, hr.keyed or hr.aggregate in Python"
        )
    if "Join" in others:
        raise SqlError(
            f"view {view.name} joins streams: use hr.join with an interval of time in Python, or "
            "hr.join_tables for tables that change"
        )
    if others:
        raise SqlError(
            f"view {view.name} can't stay right as rows come, because of {', '.join(sorted(others))}: use "
            "hr.top, hr.match or hr.keyed in Python"
        )
    return made


def _groups(view: View, _shape: Shape, tables: Frames) -> DataFrame:
    by_name = {table.name: table for table in view.tables}
    whole = {name: timeless(frame, by_name[name]) for name, frame in tables.items()}
    made = _analysed(view, view.query, whole)
    if operators_of(made) & {"Join", "Window", "Distinct"}:
        raise SqlError(
            f"view {view.name} joins or orders before it groups: make a view for each step, or use hr.join "
            "in Python"
        )
    if made.isStreaming and (refusal := can_stream(made, "Update")) is not None:
        raise SqlError(f"view {view.name} can't run: {refusal}")
    return made


def _windows(view: View, shape: Shape, tables: Frames) -> DataFrame:
    clauses, call = shape.clauses, shape.window
    assert clauses is not None, "windows have clauses"
    assert call is not None, "windows have a window"
    base = _selected(view, clauses, tables)
    _refuse_state(view, base)
    base, by = _grouped(view, clauses, base)
    made = window(base, _kind(call), by=list(by.values()), event_time=call.column).agg(
        *_aggregates(clauses, base, by)
    )
    return made.select(*_result(view, clauses, by), _FIRING)


def _table_rows(view: View, shape: Shape, tables: Frames) -> DataFrame:
    clauses = shape.clauses
    assert clauses is not None, "views of tables have clauses"
    _refuse_state(view, _analysed(view, view.query, tables))
    changed = {name: changes(frame).drop(CHANGED_AT) for name, frame in tables.items()}
    made = _analysed(view, view.query, changed)
    if WEIGHT not in made.columns:
        where = "" if clauses.where is None else f" WHERE {clauses.where}"
        sql = f"SELECT {clauses.select}, {WEIGHT} FROM {clauses.source}{where}"  # noqa: S608 - it is the user's
        made = _analysed(view, sql, changed)
    _check_key(view, shape, made)
    return upserts(made.drop(CHANGE_COLUMN), key=shape.key)


def _table_groups(view: View, shape: Shape, tables: Frames) -> DataFrame:
    clauses = shape.clauses
    assert clauses is not None, "views of tables have clauses"
    _refuse_state(view, _selected(view, clauses, tables))
    changed = {name: changes(frame).drop(CHANGED_AT) for name, frame in tables.items()}
    base, by = _grouped(view, clauses, _selected(view, clauses, changed))
    made = aggregate(base, *_aggregates(clauses, base, by), by=list(by.values()))
    return upserts(made.select(*_result(view, clauses, by), WEIGHT), key=shape.key)


_MAKERS: Final[Mapping[str, Callable[[View, Shape, Frames], DataFrame]]] = {
    "rows": _rows,
    "groups": _groups,
    "windows": _windows,
    "table rows": _table_rows,
    "table groups": _table_groups,
}


def _analysed(view: View, sql: str, tables: Frames) -> DataFrame:
    session = next(iter(tables.values())).sparkSession
    try:
        return analyse_on(session, sql, tables)
    except SqlError as error:
        raise SqlError(f"view {view.name}: {error}") from error


def _selected(view: View, clauses: Clauses, tables: Frames) -> DataFrame:
    """The rows that are grouped, with all columns."""
    where = "" if clauses.where is None else f" WHERE {clauses.where}"
    sql = f"SELECT * FROM {clauses.source}{where}"  # noqa: S608 - it is the user's own
    return _analysed(view, sql, tables)


def _refuse_state(view: View, rows: DataFrame) -> None:
    """Refuse what does not treat each row by itself."""
    if others := operators_of(rows) - _BY_ROW:
        raise SqlError(
            f"view {view.name} has {', '.join(sorted(others))} in what it selects from: make a view for each "
            "step, or use hr.join, hr.window and hr.keyed in Python"
        )


def _refuse_moving(view: View, shape: Shape, tables: Frames) -> None:
    """Refuse what would not be the same when it is computed again, of rows that have not changed."""
    whole = _analysed(view, view.query, tables)
    if subqueries_of(whole):
        raise SqlError(
            f"view {view.name} has a query in an expression, whose result would change under rows that were "
            "given: use hr.join or hr.join_tables in Python"
        )
    of_table = shape.kind in {"table rows", "table groups"}
    if not of_table and shape.kind != "groups":
        return
    if found := uncertain_functions(whole, tables, of_columns=of_table):
        raise SqlError(
            f"view {view.name} has {' and '.join(sorted(found))}, which gives another value each time, so "
            "that its current rows would not stay right: leave it to who queries the view"
        )


def _grouped(view: View, clauses: Clauses, base: DataFrame) -> tuple[DataFrame, dict[str, str]]:
    """With a column for each thing that is grouped by; and their columns, by the names in the result."""
    by: dict[str, str] = {}
    columns = base.columns
    for number, (name, item) in enumerate(group_items(view, clauses).items()):
        text = unqualified(item.text, clauses.source, columns)
        if text.strip("`") == name and name in base.columns:
            by[name] = name
        else:
            by[name] = f"{_GROUP}{number}"
            base = base.withColumn(by[name], F.expr(text))
    return base, by


def _aggregates(clauses: Clauses, base: DataFrame, by: Mapping[str, str]) -> list[Column]:
    return [
        F.expr(unqualified(item.text, clauses.source, base.columns)).alias(item.name)
        for item in aggregate_items(clauses)
        if item.name not in by
    ]


def _result(view: View, clauses: Clauses, by: Mapping[str, str]) -> list[Column]:
    """The selected columns, in their order."""
    named = {item.normal: name for name, item in group_items(view, clauses).items()}
    found = []
    for item in clauses.items:
        part = window_part(item)
        if part is not None or window_call(item) is not None:
            column = F.col("window")[part] if part else F.col("window")
            found.append(column.alias(item.alias or part or "window"))
        elif item.normal in named:
            name = named[item.normal]
            found.append(F.col(name_text(by[name])).alias(name))
        else:
            found.append(F.col(name_text(item.name)))
    return found


def _kind(call: WindowCall) -> Kind:
    if call.function == "session_window":
        return session_window(call.lengths[0])
    size, *rest = call.lengths
    if not rest:
        return tumbling(size)
    every, offset = rest[0], rest[1] if len(rest) > 1 else "0 seconds"
    return tumbling(size, offset=offset) if every == size else hopping(size, every=every, offset=offset)


def _check_key(view: View, shape: Shape, rows: DataFrame) -> None:
    for name in (*shape.key, *key_columns(view.key)):
        if name not in rows.columns:
            raise SqlError(
                f"view {view.name}: its records are told apart by {name}, which is none of its columns "
                f"({', '.join(rows.columns)}): select it"
            )
