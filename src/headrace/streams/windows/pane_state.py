"""The panes of all keys of a bucket, as they are kept: what has come in each, as partials of the aggregates.

    _key, _pane_us     the number of the key, and when the pane begins; rows are in the order of both
    _rows              how many rows have come
    _changed_us        the watermark when the last of them came: of a window that has ended by it, the last
                       firing was a late one
    partials           as the aggregates want them

Since panes are in order, those of a window are a stretch of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.streams.windows.aggregate import Aggregate, Partials
from headrace.streams.windows.exact import in_one_piece
from headrace.streams.windows.kept_state import check_types
from headrace.streams.windows.panes import Grid
from headrace.streams.windows.places import Places, grouped
from headrace.streams.windows.results import Layout
from headrace.streams.windows.runs import Indices, joined, merge_pairs, take
from headrace.streams.windows.stretches import Stretches

_NUMBERS: Final = ("_key", "_pane_us", "_rows", "_changed_us")


@dataclass(frozen=True, slots=True, kw_only=True)
class Panes:
    """Panes in the order of their key, then of their start."""

    keys: Indices
    starts_us: Indices
    rows: Indices
    changed_us: Indices
    partials: tuple[Partials, ...]
    """Of each aggregate."""

    def taken(self, which: Indices) -> Panes:
        """Some of the panes, in their order."""
        return Panes(
            keys=self.keys[which],
            starts_us=self.starts_us[which],
            rows=self.rows[which],
            changed_us=self.changed_us[which],
            partials=tuple(take(partials, which) for partials in self.partials),
        )


def read_panes(table: pa.Table | None, layout: Layout) -> Panes:
    """The panes of a state; none at first."""
    schema = panes_schema(layout)
    if table is None:
        table = schema.empty_table()
    check_types(table, schema)
    keys, starts_us, rows, changed_us = (np.asarray(in_one_piece(table[name])) for name in _NUMBERS)
    return Panes(
        keys=keys,
        starts_us=starts_us,
        rows=rows,
        changed_us=changed_us,
        partials=tuple(layout.read_partials(table)),
    )


def write_panes(panes: Panes, layout: Layout) -> pa.Table:
    """The table of state."""
    numbers = (panes.keys, panes.starts_us, panes.rows, panes.changed_us)
    columns = [*map(pa.array, numbers), *(column for partials in panes.partials for column in partials)]
    return pa.Table.from_arrays(columns, schema=panes_schema(layout))


def panes_schema(layout: Layout) -> pa.Schema:
    """The columns of the table of state."""
    return pa.schema([*(pa.field(name, pa.int64()) for name in _NUMBERS), *layout.partial_fields()])


def gather_panes(
    rows: pa.Table, keys: Indices, starts_us: Indices, watermark_us: int, aggregates: Sequence[Aggregate]
) -> Panes:
    """The panes of rows, given the key and the pane of each."""
    order, starts = grouped(keys, starts_us)
    in_order = rows.take(pa.array(order))
    firsts = order[starts]
    return Panes(
        keys=keys[firsts],
        starts_us=starts_us[firsts],
        rows=np.diff(starts, append=len(order)),
        changed_us=np.full(len(firsts), watermark_us, dtype=np.int64),
        partials=tuple(aggregate.gather(in_order, starts) for aggregate in aggregates),
    )


def merge_panes(kept: Panes, added: Panes, aggregates: Sequence[Aggregate]) -> Panes:
    """Kept panes with those of new rows. Only panes that have new rows are merged; the others are copied."""
    places, is_kept = Places(kept.keys, kept.starts_us).find(added.keys, added.starts_us)
    touched, news = places[is_kept], np.flatnonzero(~is_kept)
    # Behind the kept panes lie the added ones, and behind those the merged ones, which replace the kept ones.
    source = np.concatenate([np.arange(len(kept.keys)), len(kept.keys) + news])
    source[touched] = len(kept.keys) + len(added.keys) + np.arange(len(touched))
    keys = np.concatenate([kept.keys, added.keys[news]])
    starts_us = np.concatenate([kept.starts_us, added.starts_us[news]])
    order = np.lexsort((starts_us, keys))
    partials = []
    for aggregate, old, new in zip(aggregates, kept.partials, added.partials, strict=True):
        merged = merge_pairs(aggregate, take(old, touched), take(new, np.flatnonzero(is_kept)))
        partials.append(take(joined([old, new, merged]), source[order]))
    rows = np.concatenate([kept.rows, added.rows, kept.rows[touched] + added.rows[is_kept]])
    changed_us = np.concatenate([kept.changed_us, added.changed_us, added.changed_us[is_kept]])
    return Panes(
        keys=keys[order],
        starts_us=starts_us[order],
        rows=rows[source[order]],
        changed_us=changed_us[source[order]],
        partials=tuple(partials),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Composed:
    """Windows put together from their panes."""

    which: Indices
    """The windows that have any pane, as places among those asked for."""
    changed_us: Indices
    results: list[pa.Array]
    """Of each aggregate."""


def compose(panes: Panes, keys: Indices, starts_us: Indices, ends_us: Indices, layout: Layout) -> Composed:
    """The results of windows of keys, as far as there are panes of them."""
    places = Places(panes.keys, panes.starts_us)
    firsts = places.first_from(keys, starts_us)
    lengths = places.first_from(keys, ends_us) - firsts
    which = np.flatnonzero(lengths)
    stretches = Stretches(keys=panes.keys, firsts=firsts[which], lengths=lengths[which])
    # What is taken back must be what was given, to the last digit of a sum.
    merged = stretches.merged(layout.aggregates, panes.partials, by_nodes=not layout.retract)
    results = [one.finish(partials) for one, partials in zip(layout.aggregates, merged, strict=True)]
    return Composed(which=which, changed_us=stretches.greatest(panes.changed_us), results=results)


def distinct_windows(
    panes: Panes, grid: Grid, after_us: int, up_to_us: int
) -> tuple[Indices, Indices, Indices]:
    """Keys and ends of the windows that have any of these panes, and how many rows those panes have.

    Only windows that end later than one time, and not later than the other; in the order of keys, then ends.
    """
    # Of a pane, only windows that the one before it of the same key is not in.
    floor_us = np.full(len(panes.keys), after_us)
    again = np.flatnonzero(panes.keys[1:] == panes.keys[:-1])
    floor_us[again + 1] = np.maximum(grid.last_ends(panes.starts_us[again]), after_us)
    which, ends_us = grid.ends(panes.starts_us, floor_us, up_to_us)
    keys = panes.keys[which]
    places = Places(panes.keys, panes.starts_us)
    totals = np.concatenate([[0], np.cumsum(panes.rows)])
    firsts, lasts = places.first_from(keys, grid.starts(ends_us)), places.first_from(keys, ends_us)
    return keys, ends_us, totals[lasts] - totals[firsts]
