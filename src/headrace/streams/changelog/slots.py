"""State that is divided over slots by a hash, so that a step reads and writes what it touches only.

    slots             one row: `slots`, how many there are (a power of two), and `rows`, how many they hold
    <table>-00042     the rows of a table whose hash belongs to slot 42

All tables of an operator are divided alike, by their column `_hash`; the lower bits of the hash have decided
the bucket, so the slot is told by others. When slots hold more than SLOT_ROWS on the average, their number is
doubled, which reads and writes all of them: so seldom that it costs each row no more than once or twice.

A step sees only the rows that have one of the hashes it asks for. What lies beside them is read and written
again as it is: to look at it costs more than that, and small steps touch many slots for one row in each.

Pure: no Spark, no I/O.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.streams.buckets.logic import Tables
from headrace.streams.changelog.zset import HASH
from headrace.streams.windows.kept_state import check_types
from headrace.streams.windows.runs import Indices, stacked

SLOTS: Final = "slots"
SLOT_ROWS: Final = 2048
_SHIFT: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class SlottedTables:
    """The slots of a state that a step touches. For one step."""

    state: Tables
    slot_count: int
    row_count: int
    """Of all slots."""
    touched: tuple[int, ...]
    kept: Mapping[str, pa.Table]
    """By name: of the rows in these slots, those that have one of the hashes."""
    others: Mapping[str, pa.Table]
    """By name: the rows beside them."""
    was_read: bool

    @classmethod
    def open(
        cls, state: Tables, schemas: Mapping[str, pa.Schema], hashes: Indices, *, everything: bool = False
    ) -> SlottedTables:
        """Read the slots of these hashes, or all. `schemas` says which tables there are, without `_hash`."""
        told = state.get(SLOTS)
        slot_count = 1 if told is None else int(told["slots"][0].as_py())
        touched = range(slot_count) if everything else np.unique(slots_of(hashes, slot_count)).tolist()
        whole = {name: _read(state, name, schema, touched) for name, schema in schemas.items()}
        asked = None if everything else pa.array(np.unique(hashes))
        parted = {name: _parted(table, asked) for name, table in whole.items()}
        return cls(
            state=state,
            slot_count=slot_count,
            row_count=0 if told is None else int(told["rows"][0].as_py()),
            touched=tuple(touched),
            kept={name: kept for name, (kept, _others) in parted.items()},
            others={name: others for name, (_kept, others) in parted.items()},
            was_read=told is not None,
        )

    def close(self, tables: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
        """The state in which the rows that have one of the hashes are those of the tables.

        A table that is the same is not written again.
        """
        before = sum(table.num_rows for table in self.kept.values())
        row_count = self.row_count - before + sum(table.num_rows for table in tables.values())
        slot_count = self.slot_count
        while row_count > slot_count * SLOT_ROWS:
            slot_count *= 2
        made: dict[str, pa.Table] = {}
        for name, table in tables.items():
            if slot_count != self.slot_count:
                untouched = set(range(self.slot_count)) - set(self.touched)
                rest = _read(self.state, name, _bare(table.schema), sorted(untouched))
                made |= _divided(name, stacked([table, self.others[name], rest]), slot_count)
            elif table is self.kept[name]:
                made |= {each: self.state[each] for each in self._names(name) if each in self.state}
            else:
                made |= _divided(name, stacked([table, self.others[name]]), slot_count)
        if self.was_read and (slot_count, row_count) == (self.slot_count, self.row_count):
            return {**made, SLOTS: self.state[SLOTS]}
        if not self.was_read and not row_count:
            return {}
        told = {"slots": pa.array([slot_count], pa.int64()), "rows": pa.array([row_count], pa.int64())}
        return {**made, SLOTS: pa.table(told)}

    def _names(self, table: str) -> list[str]:
        return [_name(table, slot) for slot in self.touched]


def slots_of(hashes: Indices, slot_count: int) -> Indices:
    """Which slot each hash belongs to."""
    return (hashes >> _SHIFT) & (slot_count - 1)


def hashes_of(rows: pa.Table) -> Indices:
    """The column of hashes."""
    hashes: Indices = rows[HASH].to_numpy()
    return hashes


def _read(state: Tables, name: str, schema: pa.Schema, slots: Sequence[int]) -> pa.Table:
    empty = schema.append(pa.field(HASH, pa.int64())).empty_table()
    found = [state[each] for slot in slots if (each := _name(name, slot)) in state]
    for each in found:
        check_types(each, schema)
    kept = stacked([empty, *(each.replace_schema_metadata(None) for each in found)])
    # Without columns that are not asked for any more.
    return kept.select(empty.schema.names)


def _parted(table: pa.Table, hashes: pa.Array | None) -> tuple[pa.Table, pa.Table]:
    """The rows that have one of the hashes, and the others."""
    if hashes is None or table.num_rows < len(hashes):
        return table, table.slice(0, 0)
    is_asked = pc.is_in(table[HASH], value_set=hashes)
    return table.filter(is_asked), table.filter(pc.invert(is_asked))


def _bare(schema: pa.Schema) -> pa.Schema:
    return schema.remove(schema.get_field_index(HASH)).remove_metadata()


def _divided(name: str, table: pa.Table, slot_count: int) -> dict[str, pa.Table]:
    if not table.num_rows:
        return {}
    slots = slots_of(hashes_of(table), slot_count)
    order = np.argsort(slots, kind="stable")
    ordered, slots = table.take(pa.array(order)), slots[order]
    present, starts = np.unique(slots, return_index=True)
    ends = np.append(starts[1:], len(slots))
    return {
        _name(name, slot): ordered.slice(start, end - start)
        for slot, start, end in zip(present.tolist(), starts.tolist(), ends.tolist(), strict=True)
    }


def _name(table: str, slot: int) -> str:
    return f"{table}-{slot:05}"
