"""The versions of a table's rows, as a join keeps them: which one was there at a time is found by an index.

A version is a row with the time from which on it counts, or the mark that the row is gone from then on. It
counts until the next one of its key. The order is that of the log: a version that claims to be older than
the one before it counts from when that one did, and takes its place.

Where only the latest are asked for, versions have no time, and the last that came counts.

Versions are kept in runs (see runs.py), of which a micro-batch with changes appends one. Those that no event
can ask for any more are left out when runs are put together: with a horizon H, all that another of the same
key has replaced by then. The newest at H stays, unless it says that the row is gone.

Two keys may have one hash: what is found by the index is compared, and searched for one by one where it is
not the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.streams.joins.probe import same_keys
from headrace.streams.joins.runs import Pages, Run, RunRows, Runs, Wanted
from headrace.streams.time.bounds import BEGINNING_US, END_US
from headrace.streams.windows.exact import in_one_piece
from headrace.streams.windows.keys import key_codes
from headrace.streams.windows.runs import Flags, Indices, stacked

TABLE: Final = "table"
GONE: Final = "_gone"
"""Whether a version says that there is no row."""

_NONE: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Versions that have come, in the order of the log."""

    rows: pa.Table
    """With the columns of the key, those of the table, and GONE."""
    hashes: Indices
    times_us: Indices

    def __len__(self) -> int:
        return len(self.hashes)


@dataclass(frozen=True, slots=True)
class _Places:
    """Where versions lie: of each the number of its run's place among the runs, or _NONE, and its row."""

    runs: Indices
    rows: Indices
    times_us: Indices


class VersionedTable:
    """The versions of a table, for one step."""

    def __init__(self, pages: Pages, by: Sequence[str], schema: pa.Schema, *, keeps_times: bool) -> None:
        """`schema` has the columns of rows, without GONE."""
        self._by = tuple(by)
        self._schema = schema.append(pa.field(GONE, pa.bool_()))
        self._runs = Runs(pages, TABLE, self._schema)
        self._keeps_times = keeps_times

    @property
    def schema(self) -> pa.Schema:
        """The columns of versions."""
        return self._schema

    def apply(self, changes: Changes) -> None:
        """Take versions in."""
        if not len(changes):
            return
        times_us = self._in_order(changes) if self._keeps_times else np.zeros(len(changes), np.int64)
        added = RunRows(
            rows=changes.rows.select(self._schema.names),
            hashes=changes.hashes,
            times_us=times_us,
            marks=np.zeros(len(changes), dtype=bool),
        ).ordered()
        # Only what the versions say of each other: whether there is anything older is another question.
        wanted = self._wanted(BEGINNING_US)
        self._runs.append(added.take(np.flatnonzero(wanted(added, False))))

    def truncate(self, at_us: int) -> None:
        """All rows are gone from this time on."""
        if not self._keeps_times:
            for run in self._runs:
                self._runs.remove(run)
            return
        parts = [self._all(run) for run in self._runs]
        if not parts:
            return
        rows = stacked([part.rows for part in parts])
        times_us = np.concatenate([part.times_us for part in parts])
        (codes,) = key_codes([rows], self._by)
        order = np.lexsort((times_us, codes))
        is_last = np.append(codes[order][1:] != codes[order][:-1], True)
        newest = order[is_last]
        newest = newest[~_flags(rows[GONE])[newest]]
        gone = self._marked_gone(rows.take(pa.array(newest)))
        hashes = np.concatenate([part.hashes for part in parts])[newest]
        self.apply(Changes(rows=gone, hashes=hashes, times_us=np.full(len(newest), at_us, np.int64)))

    def find(self, keys: pa.Table, hashes: Indices, at_us: Indices) -> tuple[Flags, pa.Table]:
        """Of each key whether there was a row at the time, and the rows of those that had one."""
        places, rows = self._locate(keys, hashes, at_us)
        there = np.flatnonzero(places.runs != _NONE)
        is_gone = _flags(rows[GONE])
        is_found = np.zeros(len(hashes), dtype=bool)
        is_found[there[~is_gone]] = True
        return is_found, rows.filter(pa.array(~is_gone))

    def tidy(self, horizon_us: int) -> None:
        """Make few runs of many, and forget what no event at the horizon or later asks for."""
        self._runs.tidy(self._wanted(horizon_us))
        self._runs.finish()

    def _locate(self, keys: pa.Table, hashes: Indices, at_us: Indices) -> tuple[_Places, pa.Table]:
        """The versions, and their rows, of those that have one."""
        at_us = at_us if self._keeps_times else np.zeros(len(hashes), np.int64)
        places = self._by_hash(hashes, at_us)
        there = np.flatnonzero(places.runs != _NONE)
        rows = self._read(places.runs[there], places.rows[there])
        is_same = same_keys(rows, keys.take(pa.array(there)), self._by)
        if is_same.all():
            return places, rows
        for place in there[~is_same].tolist():
            run, row, time_us = self._search(keys.slice(place, 1), int(hashes[place]), int(at_us[place]))
            places.runs[place], places.rows[place], places.times_us[place] = run, row, time_us
        there = np.flatnonzero(places.runs != _NONE)
        return places, self._read(places.runs[there], places.rows[there])

    def _by_hash(self, hashes: Indices, at_us: Indices) -> _Places:
        """The last version with each hash that is not later; of equal times, the one that came last."""
        found = _Places(
            np.full(len(hashes), _NONE, np.int64),
            np.zeros(len(hashes), np.int64),
            np.full(len(hashes), BEGINNING_US, np.int64),
        )
        for number, run in enumerate(self._runs):
            index = self._runs.index(run)
            first, end = index.last_before(hashes, at_us)
            there = np.flatnonzero(end > first)
            times_us = index.times_us[end[there] - 1]
            is_newer = times_us >= found.times_us[there]
            chosen = there[is_newer]
            found.runs[chosen] = number
            found.rows[chosen] = end[chosen] - 1
            found.times_us[chosen] = times_us[is_newer]
        return found

    def _search(self, key: pa.Table, hash_: int, at_us: int) -> tuple[int, int, int]:
        """The same for one key, by looking at all versions with its hash."""
        best = (_NONE, 0, BEGINNING_US)
        hashes, at = np.array([hash_]), np.array([at_us])
        for number, run in enumerate(self._runs):
            index = self._runs.index(run)
            first, end = index.last_before(hashes, at)
            places = np.arange(first[0], end[0])
            rows = self._runs.rows(run, places)
            same = places[same_keys(rows, key.take(pa.array(np.zeros(len(places), np.int64))), self._by)]
            if len(same) and index.times_us[same[-1]] >= best[2]:
                best = (number, int(same[-1]), int(index.times_us[same[-1]]))
        return best

    def _read(self, runs: Indices, rows: Indices) -> pa.Table:
        """Rows by their places, in this order."""
        known = list(self._runs)
        parts, order = [self._schema.empty_table()], [np.zeros(0, np.int64)]
        for number in np.unique(runs).tolist():
            which = np.flatnonzero(runs == number)
            parts.append(self._runs.rows(known[number], rows[which]))
            order.append(which)
        if len(parts) == 2:
            return parts[1]
        return stacked(parts).take(pa.array(np.argsort(np.concatenate(order))))

    def newest(self, keys: pa.Table, hashes: Indices) -> pa.Table:
        """The rows of these keys that there are at the end, each once for each key that is asked for."""
        return self.find(keys, hashes, np.full(len(hashes), END_US))[1]

    def _in_order(self, changes: Changes) -> Indices:
        """From when on each version counts: not before the one before it."""
        times_us = changes.times_us.copy()
        before = self._by_hash(changes.hashes, np.full(len(changes), END_US))
        later = np.flatnonzero((before.runs != _NONE) & (before.times_us > times_us))
        if len(later):
            keys = changes.rows.take(pa.array(later))
            exact, _ = self._locate(keys, changes.hashes[later], np.full(len(later), END_US))
            times_us[later] = np.maximum(times_us[later], exact.times_us)
        (codes,) = key_codes([changes.rows], self._by)
        order = np.argsort(codes, kind="stable")
        is_next = codes[order][1:] == codes[order][:-1]
        if (is_next & (np.diff(times_us[order]) < 0)).any():
            newest: dict[int, int] = {}
            for place, code in enumerate(codes.tolist()):
                newest[code] = times_us[place] = max(int(times_us[place]), newest.get(code, BEGINNING_US))
        return times_us

    def _wanted(self, horizon_us: int) -> Wanted:
        horizon_us = horizon_us if self._keeps_times else END_US

        def wanted(rows: RunRows, is_first: bool) -> Flags:
            (codes,) = key_codes([rows.rows], self._by)
            order = np.argsort(codes, kind="stable")
            times_us = rows.times_us[order]
            is_next = codes[order][1:] == codes[order][:-1]
            is_replaced = np.append(
                is_next & ((times_us[1:] <= horizon_us) | (np.diff(times_us) == 0)), False
            )
            stays = ~is_replaced
            if is_first:
                # Where nothing is kept before it, that a row is gone need not be said.
                is_oldest = np.append(True, ~is_next | is_replaced[:-1])[: len(order)]
                stays &= ~(is_oldest & _flags(rows.rows[GONE])[order] & (times_us <= horizon_us))
            found = np.empty(len(order), dtype=bool)
            found[order] = stays
            return found

        return wanted

    def _all(self, run: Run) -> RunRows:
        index = self._runs.index(run)
        return RunRows(
            rows=self._runs.rows(run, np.arange(run.rows)),
            hashes=index.hashes,
            times_us=index.times_us,
            marks=np.zeros(run.rows, dtype=bool),
        )

    def _marked_gone(self, rows: pa.Table) -> pa.Table:
        gone: Mapping[str, pa.Array] = {GONE: pa.array(np.ones(rows.num_rows, dtype=bool))}
        columns = [
            rows[field.name]
            if field.name in self._by
            else gone.get(field.name, pa.nulls(rows.num_rows, field.type))
            for field in self._schema
        ]
        return pa.Table.from_arrays(columns, schema=self._schema)


def _flags(column: pa.ChunkedArray) -> Flags:
    return np.asarray(in_one_piece(column), dtype=bool)
