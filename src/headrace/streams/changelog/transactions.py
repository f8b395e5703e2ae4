"""Hold changes back until the whole transaction that they are part of has arrived.

A database's transaction may change several tables, and so several topics, which are not read in step. The
capture tells on a topic of its own where each transaction ends, and how many changes it has. Which changes
are let go when is decided by the rules of alignment.py.

| column of the input | |
|---|---|
| `_transaction` | the id of the transaction; NULL for a change of none, such as a row of a snapshot |
| `_order` | which of its transaction's changes it is; NULL where that is not told |
| `_role` | "change"; "other" for one of another table, which is only counted; or "end" |
| `_end_count` | how many changes a transaction that ends has had, in all tables that are aligned |
| `_came` | when the micro-batch began that has brought it |
| all others | those of the change |

Results are the changes by their transactions, in the order in which these are let go, those of none behind
them; the order within a partition is told by `_kafka`, which they keep.

Who aligns several tables steps each of them with the same rows, but for which of them are its own. All then
let the same transactions go in the same micro-batch.

Order is that of the whole input, so this is for one bucket. State:

| table | |
|---|---|
| `ended` | `_transaction`, `_end_count` and `_came` of transactions that ended and are not let go, in order |
| `held` | the changes that are held, and others, in order |
| `gone` | the last transactions that were let go, and whether whole: what comes of them is not held |

Changes that are let go without the rest of their transaction are counted as `unaligned`, and transactions
that are given up before any change of theirs has come as `ends_given_up`. At the end of the input all are let
go. Pure: no Spark, no I/O.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.streams.buckets.logic import RESULTS, Arrivals, Step, Tables
from headrace.streams.changelog.alignment import Decision, Ended, Held, Limits, decide
from headrace.streams.changelog.zset import relaxed
from headrace.streams.time.bounds import END_US
from headrace.streams.topic import METADATA_COLUMN
from headrace.streams.windows.exact import in_one_piece
from headrace.streams.windows.runs import stacked

TRANSACTION: Final = "_transaction"
ORDER: Final = "_order"
ROLE: Final = "_role"
END_COUNT: Final = "_end_count"
CAME: Final = "_came"
CHANGE: Final = "change"
OTHER: Final = "other"
END: Final = "end"
MADE: Final = (TRANSACTION, ORDER, ROLE, END_COUNT, CAME)
"""The columns that tell of a change what is needed to hold it, and are no part of it."""

ENDED: Final = "ended"
HELD: Final = "held"
GONE: Final = "gone"
HELD_MAX: Final = 1_000_000
GONE_MAX: Final = 10_000
"""How many transactions that were let go are known as such."""

_IS_WHOLE: Final = "_is_whole"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlignTransactions:
    """Steps changes that wait for their transactions."""

    patience_us: int
    """How long a change is held."""
    apart: tuple[str, ...] = ()
    """Columns that were made for it alone, and are not among the results."""
    held_max: int = HELD_MAX

    def output_schemas(self, rows: pa.Schema) -> Mapping[str, pa.Schema]:
        names = [name for name in rows.names if name not in (*MADE, *self.apart)]
        return {RESULTS: pa.schema([pa.field(name, rows.field(name).type) for name in names])}

    def step(self, state: Tables, arrivals: Arrivals) -> Step:
        rows = relaxed(arrivals.rows)
        is_end = pc.equal(rows[ROLE], END)
        ended = _after(state, ENDED, rows.select([TRANSACTION, END_COUNT, CAME]).filter(is_end))
        held = _after(state, HELD, rows.filter(pc.invert(is_end)))
        gone = _gone(state)
        decision = decide(_changes(held), _ended(ended), gone, self._limits(rows, is_end=arrivals.is_end))
        goes = pa.array(decision.goes, pa.bool_())
        released = _in_order(held.filter(goes), list(decision.released))
        schema = self.output_schemas(rows.schema)[RESULTS]
        is_own = np.asarray(pc.equal(held[ROLE], CHANGE))
        unaligned = int(np.count_nonzero(is_own & np.array(decision.is_apart, dtype=bool)))
        counts = {"unaligned": unaligned, "ends_given_up": decision.given_up_count}
        return Step(
            state={
                ENDED: _ended_table(decision.ended, ended.schema),
                HELD: held.filter(pc.invert(goes)),
                GONE: _gone_table(gone, decision),
            },
            outputs={RESULTS: released.filter(pc.equal(released[ROLE], CHANGE)).select(schema.names)},
            counts={name: count for name, count in counts.items() if count},
        )

    def _limits(self, rows: pa.Table, *, is_end: bool) -> Limits:
        if is_end:
            return Limits(came_before_us=END_US, held_max=self.held_max)
        now_us = max(_micros(rows), default=0)
        return Limits(came_before_us=now_us - self.patience_us, held_max=self.held_max)


def _after(state: Tables, name: str, added: pa.Table) -> pa.Table:
    """What is kept, and what is added to it."""
    kept = state.get(name)
    if kept is None:
        return added
    return stacked([kept.replace_schema_metadata(None), added]).select(added.schema.names)


def _micros(rows: pa.Table) -> list[int]:
    times: list[int] = rows[CAME].cast(pa.int64()).to_pylist()
    return times


def _changes(held: pa.Table) -> list[Held]:
    columns = (held[TRANSACTION].to_pylist(), held[ORDER].to_pylist(), _partitions(held), _micros(held))
    return [Held(*each) for each in zip(*columns, strict=True)]


def _partitions(rows: pa.Table) -> list[object]:
    """Where each change came from; all from one place where that is not known."""
    if METADATA_COLUMN not in rows.schema.names:
        return [None] * rows.num_rows
    places = in_one_piece(rows[METADATA_COLUMN])
    topics, partitions = (places.field(name).to_pylist() for name in ("topic", "partition"))
    return list(zip(topics, partitions, strict=True))


def _ended(ended: pa.Table) -> list[Ended]:
    """The ends; of one that was sent twice, what was told last and since when it is there."""
    columns = (ended[TRANSACTION].to_pylist(), ended[END_COUNT].to_pylist(), _micros(ended))
    found: dict[str, Ended] = {}
    for transaction, count, came_us in zip(*columns, strict=True):
        first = found.get(transaction)
        since_us = came_us if first is None else first.came_us
        found[transaction] = Ended(transaction, count or 0, since_us)
    return list(found.values())


def _ended_table(ended: Sequence[Ended], schema: pa.Schema) -> pa.Table:
    columns = zip(*ended, strict=True) if ended else ((), (), ())
    arrays = [pa.array(column, kind.type) for column, kind in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def _gone(state: Tables) -> dict[str, bool]:
    kept = state.get(GONE)
    if kept is None:
        return {}
    return dict(zip(kept[TRANSACTION].to_pylist(), kept[_IS_WHOLE].to_pylist(), strict=True))


def _gone_table(gone: Mapping[str, bool], decision: Decision) -> pa.Table:
    newest = list({**gone, **decision.released}.items())[-GONE_MAX:]
    ids, are_whole = [each for each, _ in newest], [each for _, each in newest]
    return pa.table({TRANSACTION: pa.array(ids, pa.string()), _IS_WHOLE: pa.array(are_whole, pa.bool_())})


def _in_order(rows: pa.Table, ids: Sequence[str]) -> pa.Table:
    """The changes by their transactions, in the order in which these are let go; those of none come last."""
    places = {transaction: place for place, transaction in enumerate(ids)}
    order = [places.get(each, len(ids)) for each in rows[TRANSACTION].to_pylist()]
    return rows.take(pa.array(np.argsort(np.array(order, dtype=np.int64), kind="stable")))
