"""From a row that has come, changed or gone to the records of it, all on its table's topic.

| change | records |
|---|---|
| insert | `c` |
| update | `u`; if the key changed: `d` and a tombstone with the old key, then `c` with the new one |
| delete | `d`, and a tombstone |
| truncate | `t`, without a key |

The two events of a key that changed name each other's keys in their headers. Rows of a table without a key
have no tombstones. Which values of an update are missing, and where they come from, is told in
last_values.py.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from headrace.cdc.envelope import TransactionEvents, as_json
from headrace.cdc.last_values import ROW_BYTES_MIN, LastValues, MissingValues
from headrace.cdc.messages import GONE, UNCHANGED, Delete, Insert, Row, Update
from headrace.cdc.record import Record
from headrace.cdc.tables import Table
from headrace.cdc.values.scalars import NULL

OLD_KEY: Final = "__debezium.oldkey"
NEW_KEY: Final = "__debezium.newkey"
GONE_COLUMNS: Final = "headrace.columns-gone"
"""The header that names, as a JSON array, columns that are left out as their values are gone for good."""


class Moment(NamedTuple):
    """Where in the log a change lies, and when it is written."""

    events: TransactionEvents
    lsn: int
    now_ns: int


class RowRecords:
    """Makes the records of changes of rows. Belongs to one thread."""

    def __init__(self, last_values: LastValues | None, *, tombstones: bool) -> None:
        self._last_values = last_values
        self._has_tombstones = tombstones

    def insert(self, table: Table, change: Insert, at: Moment) -> list[Record]:
        """A row that has come."""
        key = table.key(change.new)
        after = table.row(change.new)
        self._remember(table, key, change.new, is_new=True)
        return [Record(table.topic, key, _event(table, "c", at, after=after))]

    def update(self, table: Table, change: Update, at: Moment) -> list[Record] | MissingValues:
        """A row that has changed, unless values of it are missing."""
        new = self._filled(table, change)
        if isinstance(new, MissingValues):
            return new
        key = table.key(new)
        old_key = key if change.old is None else table.key(change.old)
        after = table.row(new)
        headers = _headers_of_gone(table, new)
        before = NULL if change.old is None else table.row(change.old)
        if key != old_key:
            self._forget(table, old_key)
            self._remember(table, key, new, is_new=True)
            moved = self._gone(table, old_key, before, at, headers=((NEW_KEY, key or NULL),))
            headers = ((OLD_KEY, old_key or NULL), *headers)
            return [*moved, Record(table.topic, key, _event(table, "c", at, after=after), headers)]
        self._remember(table, key, new, is_new=False)
        before = before if change.is_old_whole else NULL
        return [Record(table.topic, key, _event(table, "u", at, before=before, after=after), headers)]

    def delete(self, table: Table, change: Delete, at: Moment) -> list[Record]:
        """A row that has gone."""
        key = table.key(change.old)
        self._forget(table, key)
        return self._gone(table, key, table.row(change.old), at)

    def truncate(self, table: Table, at: Moment) -> Record:
        """All rows of a table that have gone."""
        if self._last_values is not None:
            self._last_values.forget_table(table.collection)
        return Record(table.topic, None, _event(table, "t", at))

    def forget_table(self, table: Table) -> None:
        """Its columns are others now: what was remembered of them may be something else."""
        if self._last_values is not None:
            self._last_values.forget_table(table.collection)

    def _gone(
        self,
        table: Table,
        key: bytes | None,
        before: bytes,
        at: Moment,
        headers: tuple[tuple[str, bytes], ...] = (),
    ) -> list[Record]:
        event = Record(table.topic, key, _event(table, "d", at, before=before), headers)
        if key is None or not self._has_tombstones:
            return [event]
        return [event, Record(table.topic, key, None)]

    def _filled(self, table: Table, change: Update) -> Row | MissingValues:
        if UNCHANGED not in change.new:
            return change.new
        if change.old is not None and change.is_old_whole:
            return _filled_from(change.old, change.new)
        # An identity that is itself large is logged with the update, though it has not changed.
        new = change.new if change.old is None else _filled_from_identity(table, change.old, change.new)
        new = self._filled_from_last(table, new if change.old is None else change.old, new)
        missing = [
            table.relation.columns[place].name
            for place, value in enumerate(new)
            if value is UNCHANGED and place in table.needed_places
        ]
        if not missing:
            return new
        return MissingValues(
            relation=table.relation,
            key=table.key_values(new),
            columns=tuple(missing),
            update=change._replace(new=new),
        )

    def _filled_from_last(self, table: Table, identified: Row, new: Row) -> Row:
        key = None if self._last_values is None else table.key(identified)
        if self._last_values is None or key is None:
            return new
        known = self._last_values.get(table.collection, key) or {}
        return [
            known.get(column.name, value) if value is UNCHANGED else value
            for column, value in zip(table.relation.columns, new, strict=True)
        ]

    def _remember(self, table: Table, key: bytes | None, row: Row, *, is_new: bool) -> None:
        # Where the identity is full, all that could be missing comes with the update itself.
        if self._last_values is None or key is None or table.relation.identity == "f":
            return
        size_bytes = 0
        for place in table.toastable_places:
            value = row[place]
            if isinstance(value, bytes):
                size_bytes += len(value)
        if size_bytes >= ROW_BYTES_MIN:
            self._last_values.put(table.collection, key, table.toastable_values(row))
        elif not is_new:
            self._last_values.forget(table.collection, key)

    def _forget(self, table: Table, key: bytes | None) -> None:
        if self._last_values is not None and key is not None:
            self._last_values.forget(table.collection, key)


def _event(table: Table, op: str, at: Moment, *, before: bytes = NULL, after: bytes = NULL) -> bytes:
    return at.events.row(table, op, lsn=at.lsn, before=before, after=after, now_ns=at.now_ns)


def _filled_from(old: Row, new: Row) -> Row:
    return [before if value is UNCHANGED else value for before, value in zip(old, new, strict=True)]


def _filled_from_identity(table: Table, old: Row, new: Row) -> Row:
    return [
        before if value is UNCHANGED and column.is_identity else value
        for column, before, value in zip(table.relation.columns, old, new, strict=True)
    ]


def _headers_of_gone(table: Table, row: Row) -> tuple[tuple[str, bytes], ...]:
    if GONE not in row:
        return ()
    names = [column.name for column, value in zip(table.relation.columns, row, strict=True) if value is GONE]
    return ((GONE_COLUMNS, as_json(names)),)
