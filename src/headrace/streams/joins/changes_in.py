"""Takes the changes of a table, as they come, into its versions."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.streams.changelog.current import KIND, TRUNCATE, UPSERT
from headrace.streams.changelog.slots import hashes_of
from headrace.streams.changelog.unavailable import filled, is_marked
from headrace.streams.changelog.upserts import refuse_several
from headrace.streams.changelog.zset import HASH as CHANGE_HASH
from headrace.streams.changelog.zset import (
    WEIGHT,
    consolidated,
    relaxed,
    row_codes,
    weighted,
    weights_of,
    with_column,
)
from headrace.streams.joins.probe import has_key
from headrace.streams.joins.sides import HASH, TIME
from headrace.streams.joins.versions import GONE, Changes, VersionedTable
from headrace.streams.windows.exact import in_one_piece
from headrace.streams.windows.results import times_us
from headrace.streams.windows.runs import Flags, Indices, stacked


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
    unmatched_count: int = 0
    """How many rows went that were not there."""

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
        """A changelog: what is left of the rows that are kept and of those that come and go.

        A row that goes takes only its equal with it, since the two halves of an update may come apart.
        """
        with_hash = with_column(rows.select([*self.columns, WEIGHT]), CHANGE_HASH, rows[HASH])
        changed = consolidated(with_hash.filter(pa.array(has_key(rows, self.by))))
        (codes,) = row_codes([changed], self.by)
        keys = changed.take(pa.array(np.unique(codes, return_index=True)[1]))
        kept = weighted(self.table.newest(keys, hashes_of(keys)).select(list(self.columns)), 1)
        after = consolidated(stacked([kept, changed.select(kept.schema.names)]))
        weights = weights_of(after)
        self.unmatched_count += int(-weights[weights < 0].sum())
        there = after.filter(pa.array(weights > 0))
        refuse_several(consolidated(there.select([*self.by, WEIGHT])), self.by, "hr.lookup")
        there_codes, kept_codes = row_codes([there, kept], self.by)
        net = stacked([there, kept.filter(pa.array(~np.isin(kept_codes, there_codes)))])
        hashes = self._hashes_in(net, keys)
        is_there = np.arange(net.num_rows) < there.num_rows
        self._apply(with_column(net, HASH, pa.array(hashes)), is_there, np.zeros(len(hashes), np.int64))

    def _hashes_in(self, rows: pa.Table, keys: pa.Table) -> Indices:
        """The hash of each row, of which the key is among these."""
        codes, known = row_codes([rows, keys], self.by)
        order = np.argsort(known)
        return hashes_of(keys)[order[np.searchsorted(known[order], codes)]]

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
