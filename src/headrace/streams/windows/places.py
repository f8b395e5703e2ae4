"""Pairs of a key and a time, in order: where one is, and where it would be."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from headrace.streams.windows.aggregate import Starts
from headrace.streams.windows.runs import Flags, Indices, starts_of_changes

_SMALL_MAX: Final = 2**16


class Places:
    """Finds pairs among pairs that are in the order of key, then time, and of which none is there twice."""

    def __init__(self, keys: Indices, times_us: Indices) -> None:
        self._times_us = np.unique(times_us)
        self._codes = self._coded(keys, times_us)

    def first_from(self, keys: Indices, times_us: Indices) -> Indices:
        """The place of the first pair that is not before these; behind all others where there is none."""
        return np.searchsorted(self._codes, self._coded(keys, times_us))

    def find(self, keys: Indices, times_us: Indices) -> tuple[Indices, Flags]:
        """The places of pairs, and which of them are there."""
        places = self.first_from(keys, times_us)
        if not len(self._codes):
            return places, np.zeros(len(places), dtype=bool)
        inside = np.minimum(places, len(self._codes) - 1)
        # Times are coded by their rank, so one between two others has the code of the next: compare both.
        is_known = self._times_us[np.minimum(self._ranks(times_us), len(self._times_us) - 1)] == times_us
        return inside, is_known & (self._codes[inside] == self._coded(keys, times_us))

    def _ranks(self, times_us: Indices) -> Indices:
        return np.searchsorted(self._times_us, times_us)

    def _coded(self, keys: Indices, times_us: Indices) -> Indices:
        # Ranks instead of times: there are never more of them than pairs, so that nothing overflows.
        coded: Indices = keys * len(self._times_us) + self._ranks(times_us)
        return coded


def grouped(keys: Indices, times_us: Indices) -> tuple[Indices, Starts]:
    """The order that sorts pairs by key, then time, and else leaves them; and where each begins in it."""
    if not len(keys):
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    unique_us, ranks = _ranked(times_us)
    codes = _ranked(keys * len(unique_us) + ranks)[1]
    # Numbers of 16 bits are sorted several times as fast as others.
    small = codes.astype(np.uint16) if codes.max() < _SMALL_MAX else codes
    order = np.argsort(small, kind="stable")
    return order, starts_of_changes(codes[order])


def _ranked(values: Indices) -> tuple[Indices, Indices]:
    """The values that occur, sorted, and for each value its place among them. By hashing: few occur often."""
    encoded = pa.array(values).dictionary_encode()
    seen = np.asarray(encoded.dictionary)
    order = np.argsort(seen)
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.arange(len(order))
    return seen[order], ranks[np.asarray(encoded.indices)]
