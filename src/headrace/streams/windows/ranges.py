"""Merging over ranges that overlap: for each of many ranges of a list of partials, their merge.

A block of level k is the merge of the 2**k partials from a place on; it is merged from two of level k - 1. A
range of n partials is put together from the blocks whose sizes are the binary digits of n. So many ranges
take about log2(n) merges, each of all of them at once, whatever the aggregate. The order of partials is kept.
Only blocks that a range is made of are merged, so that no sum overflows that nobody asked for.
"""

from __future__ import annotations

import numpy as np

from headrace.streams.windows.aggregate import Aggregate, Partials
from headrace.streams.windows.runs import Indices, joined, merge_pairs, starts_of_changes, take


def merge_ranges(aggregate: Aggregate, partials: Partials, first: Indices, last: Indices) -> Partials:
    """The merge of the partials from `first[i]` to `last[i]`, both included, for each i."""
    if not len(first):
        return take(partials, first)
    parts = _parts(first, last - first + 1)
    needed = _needed(parts, len(partials[0]))
    blocks = take(partials, np.flatnonzero(needed[0]))
    pieces = []
    for level, (_, places) in enumerate(parts):
        number = np.cumsum(needed[level]) - 1
        pieces.append(take(blocks, number[places]))
        if level + 1 < len(parts):
            left = np.flatnonzero(needed[level + 1])
            right = left + (1 << level)
            blocks = merge_pairs(aggregate, take(blocks, number[left]), take(blocks, number[right]))
    owners = np.concatenate([owners for owners, _ in parts])
    order = np.argsort(owners, kind="stable")
    return aggregate.merge(take(joined(pieces), order), starts_of_changes(owners[order]))


def _parts(first: Indices, lengths: Indices) -> list[tuple[Indices, Indices]]:
    """For each level, the ranges that a block of it is a part of, and where their blocks begin."""
    parts = []
    place = first.copy()
    for level in range(int(lengths.max()).bit_length()):
        owners = np.flatnonzero(lengths >> level & 1)
        parts.append((owners, place[owners]))
        place[owners] += 1 << level
    return parts


def _needed(parts: list[tuple[Indices, Indices]], count: int) -> list[np.typing.NDArray[np.bool_]]:
    """For each level, at which places blocks begin that are parts of a range, or of a larger block."""
    needed = [np.zeros(count, dtype=bool) for _ in parts]
    for level in reversed(range(len(parts))):
        needed[level][parts[level][1]] = True
        if level + 1 < len(parts):
            above = np.flatnonzero(needed[level + 1])
            needed[level][above] = True
            needed[level][above + (1 << level)] = True
    return needed
