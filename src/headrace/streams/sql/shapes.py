"""As what a view can run, by its clauses and by the tables that it reads. No Spark.

| shape | query | runs as | its topic has |
|---|---|---|---|
| `rows` | each row by itself: filters, projections, UNION ALL | Spark's own | rows |
| `groups` | GROUP BY, of topics of rows | Spark's own | the current row of each group |
| `windows` | GROUP BY with `window(at, '1 minute')` | `hr.window` | a row for each window that has ended |
| `table rows` | each row by itself, of a topic of changes | `hr.upserts` | the current rows |
| `table groups` | GROUP BY, of a topic of changes | `hr.aggregate` | the current row of each group |

Rows that come too late for their window are in `<view>.late`.

What a group is told by is what it is grouped by, which therefore must be selected. Records have one key: of
several columns it is their JSON, in the column `_key`. So it is of one column that may be null: a record
without a key would be no row of any group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from headrace.errors import SqlError
from headrace.streams.sql.clauses import Clauses, Item, WindowCall, calls_window, parse_clauses, window_call
from headrace.streams.sql.definitions import View, key_columns, split_columns
from headrace.streams.sql.qualified import alias_of
from headrace.streams.sql.tokens import tokenize
from headrace.streams.topic import OF_CHANGES

KEY_COLUMN: Final = "_key"
"""The key of records where several columns make it, or one that may be null."""

Kind = Literal["rows", "groups", "windows", "table rows", "table groups"]
KEYED: Final = ("groups", "table rows", "table groups")
"""Shapes whose topics hold the current row of each key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """As what a view runs."""

    kind: Kind
    key: tuple[str, ...] = ()
    """The columns that tell its current rows apart, by the names that they have in the result."""
    may_be_null: bool = False
    """Whether the column of the key may be."""
    clauses: Clauses | None = None
    window: WindowCall | None = None

    @property
    def is_keyed(self) -> bool:
        """Whether its topic holds the current row of each key."""
        return self.kind in KEYED

    @property
    def record_key(self) -> str | None:
        """The column that is the key of the records, where the shape says it."""
        if not self.is_keyed:
            return None
        return self.key[0] if len(self.key) == 1 and not self.may_be_null else KEY_COLUMN


def shape_of(view: View) -> Shape:
    """As what the view runs; raise if it can't."""
    clauses = parse_clauses(view.query)
    of_changes = [table for table in view.tables if table.topic.format in OF_CHANGES]
    if clauses is not None:
        _refuse_tail(view, clauses)
    if of_changes:
        return _of_table(view, clauses)
    if clauses is None or not clauses.groups:
        return Shape(kind="rows", clauses=clauses)
    windows = [found for item in clauses.groups if (found := _window(item, clauses)) is not None]
    for item in clauses.groups:
        _selected(view, clauses, item)
        if calls_window(_referred(clauses, item) or item) and _window(item, clauses) is None:
            raise SqlError(
                f"view {view.name} groups by {item.text}: write a window of time as window(column, '1 "
                "minute'), window(column, '10 minutes', '1 minute') or session_window(column, '30 minutes')"
            )
    if not windows:
        return _by_groups(view, "groups", clauses)
    if len(windows) > 1:
        raise SqlError(f"view {view.name} groups by two windows: make a view for each")
    return Shape(kind="windows", clauses=clauses, window=windows[0])


def topic_key(view: View, shape: Shape) -> tuple[str, ...]:
    """The columns that are the key of the view's records."""
    return key_columns(view.key) if shape.record_key is None else (shape.record_key,)


def group_items(view: View, clauses: Clauses) -> dict[str, Item]:
    """What is grouped by and is no window, by the name of its column."""
    found = {}
    for item in clauses.groups:
        selected = item if _window(item, clauses) is not None else _selected(view, clauses, item)
        if _window(selected, clauses) is None:
            found[selected.name] = selected
    return found


def aggregate_items(clauses: Clauses) -> list[Item]:
    """What is computed for each group."""
    grouped = {item.normal for item in clauses.groups}
    found = []
    for number, item in enumerate(clauses.items, start=1):
        is_group = {item.normal, item.name.lower(), str(number)} & grouped
        if not is_group and window_part(item) is None and window_call(item) is None:
            found.append(item)
    return found


def check_aliases(view: View, clauses: Clauses, columns: Sequence[str]) -> None:
    """Raise if it groups by a name that is both a column of its source, which Spark takes, and an alias."""
    known = {column.lower() for column in columns}
    for item in clauses.groups:
        name, found = item.normal.strip("`").lower(), _referred(clauses, item)
        if found is None or name not in known:
            continue
        parts = [token.value.lower() for token in tokenize(found.text)[::2]] if found.is_path else []
        is_of_table = len(parts) == 2 and (parts[0] not in known or parts[0] == alias_of(clauses.source))
        if parts != [name] and not (is_of_table and parts[1] == name):
            raise SqlError(
                f"view {view.name} groups by {item.text}, which is a column that it reads, and what it calls "
                f"{found.text} as well: write GROUP BY {found.text}, or another alias"
            )


def window_part(item: Item) -> str | None:
    """`start` or `end` for `window.start` and `window.end`, and nothing for `window`; None for all else."""
    for name in ("window", "session_window"):
        if item.normal == name:
            return ""
        if item.normal in {f"{name} . start", f"{name} . end"}:
            return item.normal.rpartition(" ")[2]
    return None


def _of_table(view: View, clauses: Clauses | None) -> Shape:
    if clauses is None or len(view.tables) > 1:
        raise SqlError(
            f"view {view.name} reads the changes of a table, and more: a view in SQL is made of one such "
            "table, in the plain form with WHERE and GROUP BY; use hr.join_tables in Python"
        )
    if not clauses.groups:
        own = view.tables[0].topic.key
        return Shape(kind="table rows", key=own, clauses=clauses)
    if any(_window(item, clauses) is not None for item in clauses.groups):
        raise SqlError(
            f"view {view.name} takes windows of a table's changes, which have no time of their own: group by "
            "columns, or use hr.history in Python"
        )
    return _by_groups(view, "table groups", clauses)


def _by_groups(view: View, kind: Kind, clauses: Clauses) -> Shape:
    items = [_selected(view, clauses, item) for item in clauses.groups]
    key = _checked(view, [item.name for item in items])
    may_be_null = not all(_is_required(view, clauses, item) for item in items)
    return Shape(kind=kind, key=key, may_be_null=may_be_null, clauses=clauses)


def _is_required(view: View, clauses: Clauses, item: Item) -> bool:
    """Whether it is a column of the one table that it reads, which says that it is never null."""
    if len(view.tables) != 1:
        return False
    alias, topic = alias_of(clauses.source), view.tables[0].topic
    if not item.is_path or alias is None or topic.format != "json" or topic.schema is None:
        return False
    *table, name = [token.value.lower() for token in tokenize(item.text)[::2]]
    kinds = {column.lower(): kind for column, kind in split_columns(topic.schema).items()}
    is_column = table in ([], [alias]) and name in kinds
    return is_column and kinds[name].upper().split()[-2:] == ["NOT", "NULL"]


def _refuse_tail(view: View, clauses: Clauses) -> None:
    advice = {
        "DISTINCT": "write GROUP BY instead",
        "HAVING": "make a second view of this one, with WHERE",
    }
    if clauses.tail is not None:
        told = advice.get(clauses.tail, "a view has no order and no end: leave it to who queries it")
        raise SqlError(
            f"view {view.name} has {clauses.tail}, which would not stay right as rows come: {told}"
        )


def _window(item: Item, clauses: Clauses) -> WindowCall | None:
    """The window that is grouped by, be it by its number or by its name."""
    return window_call(_referred(clauses, item) or item)


def _selected(view: View, clauses: Clauses, item: Item) -> Item:
    """The selected item that is grouped by."""
    found = _referred(clauses, item)
    if found is None and _window(item, clauses) is not None:
        return item
    if found is None:
        raise SqlError(
            f"view {view.name} groups by {item.text} and does not select it: select it, because a group is "
            "told by it"
        )
    return found


def _referred(clauses: Clauses, item: Item) -> Item | None:
    if item.normal.isdecimal():
        number = int(item.normal)
        return clauses.items[number - 1] if 1 <= number <= len(clauses.items) else None
    by_text = (each for each in clauses.items if each.normal == item.normal)
    by_name = (each for each in clauses.items if each.name.lower() == item.normal.strip("`").lower())
    return next(by_text, None) or next(by_name, None)


def _checked(view: View, key: Sequence[str]) -> tuple[str, ...]:
    if view.key is not None:
        raise SqlError(
            f"view {view.name}: leave the option key out: its rows are told apart by what they are grouped "
            f"by, {', '.join(key)}"
        )
    return tuple(key)
