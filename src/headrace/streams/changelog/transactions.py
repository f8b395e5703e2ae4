"""Hold changes back until the whole transaction that they are part of has arrived.

A database's transaction may change several tables, and so several topics, which are not read in step. The
capture tells on a topic of its own where each transaction ends, and how many changes it has. Transactions are
let go in the order in which they ended, each when all its changes are there and all before it are gone.

| column of the input | |
|---|---|
| `_transaction` | the id of the transaction; NULL for a change of none, such as a row of a snapshot |
| `_role` | "change"; "other" for one of another table, which is only counted; or "end" |
| `_end_count` | how many changes a transaction that ends has had, in all tables that are aligned |
| all others | those of the change |

A change of no transaction is let go at once, unless one before it in its partition is held: then it waits for
that, so that no order is lost. Results are the changes by their transactions, those of none behind them; the
order within a partition is told by `_kafka`, which they keep.

Who aligns several tables steps each of them with the same rows, but for which of them are its own. All then
let the same transactions go in the same micro-batch.

Order is that of the whole input, so this is for one bucket. State:

| table | |
|---|---|
| `ended` | `_transaction` and `_end_count` of transactions that ended and are not let go, in order |
| `held` | the changes that are held, and others, in order |

At most `held_max` changes are held: a transaction of which a change never comes, because it was before the
first that is read for example, must not stop all others for ever. Then the oldest are let go as they are, and
counted as `unaligned`. Pure: no Spark, no I/O.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.streams.buckets.logic import RESULTS, Arrivals, Step, Tables
from headrace.streams.changelog.zset import relaxed
from headrace.streams.topic import METADATA_COLUMN
from headrace.streams.windows.exact import in_one_piece
from headrace.streams.windows.runs import Flags, stacked

TRANSACTION: Final = "_transaction"
ROLE: Final = "_role"
END_COUNT: Final = "_end_count"
CHANGE: Final = "change"
OTHER: Final = "other"
END: Final = "end"

ENDED: Final = "ended"
HELD: Final = "held"
HELD_MAX: Final = 1_000_000

_APART: Final = (TRANSACTION, ROLE, END_COUNT)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlignTransactions:
    """Steps changes that wait for their transactions."""

    apart: tuple[str, ...] = ()
    """Columns that were made for it alone, and are not among the results."""
    held_max: int = HELD_MAX

    def output_schemas(self, rows: pa.Schema) -> Mapping[str, pa.Schema]:
        names = [name for name in rows.names if name not in (*_APART, *self.apart)]
        return {RESULTS: pa.schema([pa.field(name, rows.field(name).type) for name in names])}

    def step(self, state: Tables, arrivals: Arrivals) -> Step:
        rows = relaxed(arrivals.rows)
        is_end = pc.equal(rows[ROLE], END)
        ended = _after(state, ENDED, rows.select([TRANSACTION, END_COUNT]).filter(is_end))
        held = _after(state, HELD, rows.filter(pc.invert(is_end)))
        ids: list[str] = ended[TRANSACTION].to_pylist()
        transactions: list[str | None] = held[TRANSACTION].to_pylist()
        let_go = _whole(ids, ended[END_COUNT].to_pylist(), Counter(transactions))
        goes = _goes(transactions, _partitions(held), set(ids[:let_go]))
        unaligned = max(0, int(np.count_nonzero(~goes)) - self.held_max)
        goes[np.flatnonzero(~goes)[:unaligned]] = True
        released = _in_order(held.filter(pa.array(goes)), ids[:let_go])
        schema = self.output_schemas(rows.schema)[RESULTS]
        return Step(
            state={ENDED: ended.slice(let_go), HELD: held.filter(pa.array(~goes))},
            outputs={RESULTS: released.filter(pc.equal(released[ROLE], CHANGE)).select(schema.names)},
            counts={"unaligned": unaligned} if unaligned else {},
        )


def _after(state: Tables, name: str, added: pa.Table) -> pa.Table:
    """What is kept, and what is added to it."""
    kept = state.get(name)
    if kept is None:
        return added
    return stacked([kept.replace_schema_metadata(None), added]).select(added.schema.names)


def _whole(ids: Sequence[str], counts: Sequence[int], arrived: Counter[str | None]) -> int:
    """How many transactions, from the first on, have arrived whole."""
    for place, (transaction, count) in enumerate(zip(ids, counts, strict=True)):
        if arrived[transaction] < count:
            return place
    return len(ids)


def _partitions(rows: pa.Table) -> list[object]:
    """Where each change came from; all from one place where that is not known."""
    if METADATA_COLUMN not in rows.schema.names:
        return [None] * rows.num_rows
    places = in_one_piece(rows[METADATA_COLUMN])
    topics, partitions = (places.field(name).to_pylist() for name in ("topic", "partition"))
    return list(zip(topics, partitions, strict=True))


def _goes(transactions: Sequence[str | None], partitions: Sequence[object], gone: set[str]) -> Flags:
    """Which changes are let go: those of no transaction are, up to the first of a partition that waits."""
    goes = np.zeros(len(transactions), dtype=bool)
    waiting: set[object] = set()
    for place, (transaction, partition) in enumerate(zip(transactions, partitions, strict=True)):
        goes[place] = partition not in waiting if transaction is None else transaction in gone
        if not goes[place]:
            waiting.add(partition)
    return goes


def _in_order(rows: pa.Table, ids: Sequence[str]) -> pa.Table:
    """The changes by their transactions, in the order in which these ended; those of none come last."""
    places = {transaction: place for place, transaction in enumerate(ids)}
    order = [places.get(each, len(ids)) for each in rows[TRANSACTION].to_pylist()]
    return rows.take(pa.array(np.argsort(np.array(order, dtype=np.int64), kind="stable")))
