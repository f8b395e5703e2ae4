"""Values that an update does not repeat: what we saw of them last, and what is asked for when we did not.

PostgreSQL keeps large values outside of their rows (TOAST), and does not log those that an update leaves
alone. Readers of a topic want whole rows, and a placeholder in their place is worse than nothing: somebody
will store it. So a missing value is filled in, from the first of these that has it:

1. the old row, where the table's replica identity is FULL;
2. `LastValues`: what this capture itself has written last for the key;
3. the table: the capture gets `MissingValues` in place of records, reads the row, and writes the answered
   update instead. What it reads may be newer than the update, never older; the change that made it newer is
   still to come, so nobody is wrong for long.

If the row is no longer there, its delete is still to come, too. Then the column is left out of the event,
and a header says so. Nothing that was not the column's value is ever published as such.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from headrace.cdc.messages import GONE, UNCHANGED, Relation, Update, Value

ROW_BYTES_MIN: Final = 256
"""Rows whose text is shorter are not remembered. PostgreSQL moves values out of rows of 2 kB and more."""


class LastValues(Protocol):
    """What was last written of columns that can be unchanged, by table and key.

    An implementation that outlives the process must be as old as the position from which the stream goes on:
    what is younger would put later values into earlier events.
    """

    def get(self, collection: str, key: bytes) -> Mapping[str, bytes] | None:
        """Values by column, or None if nothing is known."""
        ...

    def put(self, collection: str, key: bytes, values: Mapping[str, bytes]) -> None:
        """These are the row's values now."""
        ...

    def forget(self, collection: str, key: bytes) -> None:
        """The row is gone, or holds nothing that is large."""
        ...

    def forget_table(self, collection: str) -> None:
        """All its rows are gone, or their columns are others now."""
        ...


class RecentValues:
    """Last values in memory: those of the rows that were written most recently, up to a number of bytes."""

    def __init__(self, bytes_max: int = 16 * 1024 * 1024) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._rows: OrderedDict[tuple[str, bytes], Mapping[str, bytes]] = OrderedDict()

    @property
    def size_bytes(self) -> int:
        """Of all keys and values."""
        return self._bytes

    def get(self, collection: str, key: bytes) -> Mapping[str, bytes] | None:
        """Values by column, or None if nothing is known."""
        return self._rows.get((collection, key))

    def put(self, collection: str, key: bytes, values: Mapping[str, bytes]) -> None:
        """These are the row's values now; what was written longest ago makes room for them."""
        self.forget(collection, key)
        self._rows[collection, key] = values
        self._bytes += _size_bytes(key, values)
        while self._bytes > self._bytes_max:
            (_, oldest_key), oldest = self._rows.popitem(last=False)
            self._bytes -= _size_bytes(oldest_key, oldest)

    def forget(self, collection: str, key: bytes) -> None:
        """The row is gone, or holds nothing that is large."""
        values = self._rows.pop((collection, key), None)
        if values is not None:
            self._bytes -= _size_bytes(key, values)

    def forget_table(self, collection: str) -> None:
        """All its rows are gone, or their columns are others now."""
        for place in [place for place in self._rows if place[0] == collection]:
            self.forget(*place)


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingValues:
    """An update can't be written before these values are known. Nothing was written or counted yet."""

    relation: Relation
    key: Mapping[str, Value]
    """The row as it is after the update: texts by column of its key."""
    columns: tuple[str, ...]
    """Whose values are missing."""
    update: Update

    def answered(self, values: Mapping[str, bytes | None] | None) -> Update:
        """The update, with the texts that the row has now; None, if there is no such row any more."""
        names = [column.name for column in self.relation.columns]
        new: list[Value] = [
            (GONE if values is None else values[name])
            if name in self.columns and value is UNCHANGED
            else value
            for name, value in zip(names, self.update.new, strict=True)
        ]
        return self.update._replace(new=new)


def _size_bytes(key: bytes, values: Mapping[str, bytes]) -> int:
    return len(key) + sum(map(len, values.values()))
