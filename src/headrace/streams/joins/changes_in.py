"""Takes the changes of a table, as they come, into its versions."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.streams.buckets.logic import RESULTS, Arrivals
from headrace.streams.changelog.current import KIND, TRUNCATE, UPSERT
from headrace.streams.changelog.unavailable import filled, is_marked
from headrace.streams.changelog.upserts import DELETE, Upserts
from headrace.streams.changelog.zset import HASH as CHANGE_HASH
from headrace.streams.changelog.zset import WEIGHT, relaxed, row_codes, with_column
from headrace.streams.joins.sides import HASH, TIME
from headrace.streams.joins.versions import GONE, Changes, VersionedTable
from headrace.streams.windows.exact import in_one_piece
from headrace.streams.windows.results import times_us
from headrace.streams.windows.runs import Flags, Indices


def _no_hashes() -> Indices:
    return np.zeros(0, np.int64)


@dataclass(slots=True, kw_only=True)
class ChangesIn:
    """The changes of one step."""

    table: VersionedTable
    by: tuple[str, ...]
    columns: tuple[str, ...]
    """Of the table, with those of the key."""
    hashes: Indices = field(default_factory=_no_hashes)
    """Of the keys that a row or version has come for."""
    unknown_count: int = 0
    """How many values were not sent, and are not known."""

    def take(self, rows: pa.Table) -> None:
        """Take the changes of a micro-batch in; in the order of the log."""
        if not rows.num_rows:
            return
        rows = relaxed(rows)
        if WEIGHT in rows.schema.names:
            self._weights(rows)
            return
        at_us, _ = times_us(rows, TIME)
        start = 0
        for end in [*np.flatnonzero(pc.equal(rows[KIND], TRUNCATE).to_numpy()).tolist(), rows.num_rows]:
            self._versions(rows.slice(start, end - start), at_us[start:end])
            if end < rows.num_rows:
                self.table.truncate(int(at_us[end]))
            start = end + 1

    def _versions(self, rows: pa.Table, at_us: Indices) -> None:
        if not rows.num_rows:
            return
        is_there = np.asarray(pc.equal(in_one_piece(rows[KIND]), UPSERT)).astype(bool)
        self._apply(self._filled(rows), is_there, at_us)

    def _weights(self, rows: pa.Table) -> None:
        """A changelog: what it says of each key in the end."""
        changed = with_column(rows.select([*self.columns, WEIGHT]), CHANGE_HASH, in_one_piece(rows[HASH]))
        net = Upserts(key=self.by).step({}, Arrivals(rows=changed)).outputs.get(RESULTS)
        if net is None:
            return
        net_codes, codes = row_codes([net, rows], self.by)
        present, firsts = np.unique(codes, return_index=True)
        hashes = _hashes(rows)[firsts[np.searchsorted(present, net_codes)]]
        is_there = ~np.asarray(in_one_piece(net[DELETE])).astype(bool)
        self._apply(with_column(net, HASH, pa.array(hashes)), is_there, np.zeros(len(hashes), np.int64))

    def _apply(self, rows: pa.Table, is_there: Flags, at_us: Indices) -> None:
        hashes = _hashes(rows)
        own = with_column(rows.select(list(self.columns)), GONE, pa.array(~is_there))
        self.table.apply(Changes(rows=own, hashes=hashes, times_us=at_us))
        self.hashes = np.concatenate([self.hashes, hashes[is_there]])

    def _filled(self, rows: pa.Table) -> pa.Table:
        """The versions with the values that were not sent."""
        names = [name for name in self.columns if name not in self.by]
        asked = np.flatnonzero(np.any([is_marked(in_one_piece(rows[name])) for name in names], axis=0))
        if not len(asked):
            return rows
        keys = rows.take(pa.array(asked))
        known = self.table.newest(keys, _hashes(keys))
        rows, unknown_count = filled(
            rows, known, key=self.by, names=names, kinds=in_one_piece(rows[KIND]).to_pylist()
        )
        self.unknown_count += unknown_count
        return rows


def _hashes(rows: pa.Table) -> Indices:
    return np.asarray(in_one_piece(rows[HASH]), dtype=np.int64)
