"""Runs: stretches of rows that belong together, as aggregates are given them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.streams.windows.aggregate import Aggregate, Partials, Starts

Indices = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


def run_lengths(starts: Starts, count: int) -> Indices:
    """How many rows each run has, of `count` rows in all."""
    return np.diff(np.append(starts, count))


def run_numbers(starts: Starts, count: int) -> Indices:
    """The number of the run that each row is in."""
    return np.repeat(np.arange(len(starts)), run_lengths(starts, count))


def starts_of_changes(*columns: npt.NDArray[np.generic]) -> Starts:
    """Where a run begins: at the first row, and where any of the columns differs from the row before."""
    count = len(columns[0])
    changed = np.zeros(count, dtype=bool)
    changed[:1] = True
    for column in columns:
        changed[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(changed)


def ranges(starts: Indices, lengths: Indices) -> Indices:
    """The numbers from `starts[i]` on, `lengths[i]` of them, for all i one behind the other."""
    ends = np.cumsum(lengths)
    count = int(ends[-1]) if len(ends) else 0
    numbers: Indices = np.arange(count) + np.repeat(starts - (ends - lengths), lengths)
    return numbers


def take(partials: Partials, indices: Indices) -> Partials:
    """The partials at these places."""
    return tuple(column.take(pa.array(indices)) for column in partials)


def joined(parts: Sequence[Partials]) -> Partials:
    """Partials one behind the other."""
    return tuple(pa.concat_arrays(list(columns)) for columns in zip(*parts, strict=True))


def stacked(tables: Sequence[pa.Table]) -> pa.Table:
    """Tables one below the other. A column that one of them does not have is NULL there."""
    return pa.concat_tables(tables, promote_options="default")


def merge_pairs(aggregate: Aggregate, left: Partials, right: Partials) -> Partials:
    """Merge each partial of the left with the one of the right at the same place."""
    count = len(left[0])
    interleaved = np.arange(2 * count).reshape(2, count).T.ravel()
    return aggregate.merge(take(joined([left, right]), interleaved), np.arange(0, 2 * count, 2))


def running(aggregate: Aggregate, partials: Partials, starts: Starts) -> Partials:
    """For each partial, the merge of all of its run up to it.

    Each round doubles how far back a partial reaches, so that runs of n take log2(n) rounds.
    """
    count = len(partials[0])
    place = np.arange(count) - np.repeat(starts, run_lengths(starts, count))
    reach = 1
    while True:
        late = np.flatnonzero(place >= reach)
        if not len(late):
            return partials
        merged = merge_pairs(aggregate, take(partials, late - reach), take(partials, late))
        source = np.arange(count)
        source[late] = count + np.arange(len(late))
        partials = take(joined([partials, merged]), source)
        reach *= 2


def united(
    aggregate: Aggregate, kept: Partials, kept_groups: Indices, added: Partials, added_groups: Indices
) -> Partials:
    """A partial for each group: what is kept of it, merged with what is added to it.

    Groups are numbered from 0 without a gap. A group that nothing is added to has one kept partial.
    """
    if not len(added_groups):
        return take(kept, np.argsort(kept_groups))
    count = int(max(kept_groups.max(initial=-1), added_groups.max())) + 1
    is_touched = np.zeros(count, dtype=bool)
    is_touched[added_groups] = True
    involved = np.flatnonzero(is_touched[kept_groups])
    groups = np.concatenate([kept_groups[involved], added_groups])
    order = np.argsort(groups, kind="stable")
    starts = starts_of_changes(groups[order])
    merged = aggregate.merge(take(joined([take(kept, involved), added]), order), starts)
    source = np.empty(count, dtype=np.int64)
    source[kept_groups] = np.arange(len(kept_groups))
    source[groups[order[starts]]] = len(kept_groups) + np.arange(len(starts))
    return take(joined([kept, merged]), source)
