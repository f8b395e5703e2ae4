"""Windows as stretches of panes: each is merged, without merging the same panes again and again.

Where windows overlap little, the panes of each are merged as they stand. Where they overlap much, as when an
hour of hopping windows fires at once, that would be size / every times the work. Then panes are first merged
two by two, four by four, and so on, within their key, and a stretch is put together from few of those nodes:

    panes        0   1   2   3   4   5   6   7
    level 1      |-0-|   |-1-|   |-2-|   |-3-|
    level 2      |---0---|       |---1---|
    stretch          [-------------------)          = pane 1, node 1 of level 1, node 2 of level 1, pane 6

A stretch of n panes takes at most 2 * log2(n) nodes. Only nodes that are used are made, and the order of
panes is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from headrace.streams.windows.aggregate import Aggregate, Partials
from headrace.streams.windows.runs import (
    Indices,
    joined,
    merge_pairs,
    ranges,
    run_lengths,
    starts_of_changes,
    take,
)

PIECES_MAX: Final = 4_000_000
"""How many panes of stretches are held at a time where they are merged as they stand."""
_OVERLAP_MIN: Final = 4
"""From how many stretches to a pane, on average, nodes are made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretches:
    """Stretches of panes, each within one key, and none of them empty."""

    keys: Indices
    """Of the panes, which are in the order of their keys."""
    firsts: Indices
    lengths: Indices

    def merged(
        self, aggregates: Sequence[Aggregate], partials: Sequence[Partials], *, by_nodes: bool = True
    ) -> list[Partials]:
        """For each aggregate a partial for each stretch.

        Without nodes, a stretch of the same panes always comes to the same partial, to the last digit.
        """
        if by_nodes and self.lengths.sum() > _OVERLAP_MIN * len(self.keys):
            return self._by_nodes(aggregates, partials)
        if len(self.lengths) == self.lengths.sum():
            return [take(columns, self.firsts) for columns in partials]
        parts = [
            [self._as_they_stand(aggregate, columns, low, high) for low, high in self._chunks()]
            for aggregate, columns in zip(aggregates, partials, strict=True)
        ]
        return [joined(pieces) for pieces in parts]

    def greatest(self, values: Indices) -> Indices:
        """The greatest of the panes' values, for each stretch."""
        parts = [
            np.maximum.reduceat(values[ranges(self.firsts[low:high], lengths)], np.cumsum(lengths) - lengths)
            for low, high in self._chunks()
            for lengths in [self.lengths[low:high]]
        ]
        return np.concatenate([values[:0], *parts])

    def _as_they_stand(self, aggregate: Aggregate, partials: Partials, low: int, high: int) -> Partials:
        lengths = self.lengths[low:high]
        pieces = take(partials, ranges(self.firsts[low:high], lengths))
        return aggregate.merge(pieces, np.cumsum(lengths) - lengths)

    def _chunks(self) -> list[tuple[int, int]]:
        """Where to cut, so that not too many panes are held at a time."""
        numbers = (np.cumsum(self.lengths) - 1) // PIECES_MAX
        bounds = [*starts_of_changes(numbers).tolist(), len(self.lengths)]
        return list(pairwise(bounds))

    def _by_nodes(self, aggregates: Sequence[Aggregate], partials: Sequence[Partials]) -> list[Partials]:
        levels = self._levels()
        pieces = self._pieces(levels)
        tree = _Tree.of(levels, pieces)
        order = np.lexsort((pieces.ranks, pieces.stretches))
        places = tree.places(pieces)[order]
        starts = starts_of_changes(pieces.stretches[order])
        return [
            aggregate.merge(take(tree.nodes(aggregate, columns), places), starts)
            for aggregate, columns in zip(aggregates, partials, strict=True)
        ]

    def _levels(self) -> list[_Level]:
        """The nodes of each level; those of level 0 are the panes."""
        levels = [_Level.of(run_lengths(starts_of_changes(self.keys), len(self.keys)))]
        while 1 << len(levels) <= self.lengths.max():
            levels.append(_Level.of(levels[-1].counts // 2))
        return levels

    def _pieces(self, levels: list[_Level]) -> _Pieces:
        keys = np.searchsorted(levels[0].firsts, self.firsts, side="right") - 1
        low = self.firsts - levels[0].firsts[keys]
        high = low + self.lengths
        stretches, numbers, ranks, depths = [], [], [], []
        for depth, level in enumerate(levels):
            left = np.flatnonzero((low < high) & (low % 2 == 1))
            lefts = low[left]
            low[left] += 1
            right = np.flatnonzero((low < high) & (high % 2 == 1))
            high[right] -= 1
            for which, nodes, rank in ((left, lefts, depth), (right, high[right], 2 * len(levels) - depth)):
                stretches.append(which)
                numbers.append(level.firsts[keys[which]] + nodes)
                ranks.append(np.full(len(which), rank))
                depths.append(np.full(len(which), depth))
            low, high = low // 2, high // 2
        return _Pieces(
            stretches=np.concatenate(stretches),
            numbers=np.concatenate(numbers),
            ranks=np.concatenate(ranks),
            depths=np.concatenate(depths),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pieces:
    """The nodes that stretches are put together from."""

    stretches: Indices
    """Which stretch each is a piece of."""
    ranks: Indices
    """The order of a stretch's pieces."""
    depths: Indices
    """The level of the node."""
    numbers: Indices
    """The number of the node in its level."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Level:
    counts: Indices
    """How many nodes each key has. What is left over at a key's end is in no node."""
    firsts: Indices
    """The number of each key's first node."""

    @staticmethod
    def of(counts: Indices) -> _Level:
        return _Level(counts=counts, firsts=np.cumsum(counts) - counts)

    @property
    def count(self) -> int:
        return int(self.counts.sum())

    def children(self, below: _Level, nodes: Indices) -> Indices:
        """The left one of the two nodes that each is made of; the right one follows it."""
        keys = np.repeat(np.arange(len(self.counts)), self.counts)[nodes]
        left: Indices = below.firsts[keys] + 2 * (nodes - self.firsts[keys])
        return left


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tree:
    """The nodes that are made: all panes, and of the levels above those that are used."""

    levels: list[_Level]
    made: list[Indices]
    """The numbers of the nodes of each level that are made."""
    at: list[Indices]
    """For each node of each level, where it is among those that are made."""

    @staticmethod
    def of(levels: list[_Level], pieces: _Pieces) -> _Tree:
        flags = [np.zeros(level.count, dtype=bool) for level in levels]
        for depth in reversed(range(1, len(levels))):
            flags[depth][pieces.numbers[pieces.depths == depth]] = True
            lefts = levels[depth].children(levels[depth - 1], np.flatnonzero(flags[depth]))
            flags[depth - 1][lefts] = True
            flags[depth - 1][lefts + 1] = True
        flags[0][:] = True
        return _Tree(
            levels=levels,
            made=[np.flatnonzero(flag) for flag in flags],
            at=[np.cumsum(flag) - 1 for flag in flags],
        )

    def nodes(self, aggregate: Aggregate, panes: Partials) -> Partials:
        """The partials of all nodes that are made, level after level."""
        made = [panes]
        for depth in range(1, len(self.levels)):
            lefts = self.levels[depth].children(self.levels[depth - 1], self.made[depth])
            left, right = (take(made[-1], self.at[depth - 1][side]) for side in (lefts, lefts + 1))
            made.append(merge_pairs(aggregate, left, right))
        return joined(made)

    def places(self, pieces: _Pieces) -> Indices:
        """Where the nodes of pieces are among all nodes."""
        firsts = np.cumsum([0, *(len(nodes) for nodes in self.made)])
        places = np.empty(len(pieces.numbers), dtype=np.int64)
        for depth, at in enumerate(self.at):
            own = np.flatnonzero(pieces.depths == depth)
            places[own] = firsts[depth] + at[pieces.numbers[own]]
        return places
