"""Panes: the pieces that aligned windows are made of.

A pane is as long as the greatest length that divides a window's size and the distance of windows' ends, so
that a window is a whole number of panes. Each event is in one pane; a window that fires is put together from
its panes. So an event costs the same whether it is in one window or in sixty.

    hopping, size 3, every 2          cumulative, size 3, step 1
    panes  |-|-|-|-|-|-|-|            panes  |-|-|-|-|-|-|
           [-----)                           [-)
               [-----)                       [---)
                   [-----)                   [-----)
                                                   [-)
                                                   [---)  ...

The ends of the windows that a pane belongs to are `first_end`, `first_end + stride`, ... `last_end`. The end
of a window tells its start, so a window of a key is known by its end alone. All times are in microseconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from headrace.streams.windows.kinds import AlignedKind, Cumulative, Hopping
from headrace.streams.windows.runs import Indices, ranges


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The panes and windows of an aligned kind."""

    size_us: int
    stride_us: int
    """How far the ends of two windows are apart."""
    pane_us: int
    offset_us: int
    is_cumulative: bool

    @staticmethod
    def of(kind: AlignedKind) -> Grid:
        """The grid of a kind of window."""
        if isinstance(kind, Cumulative):
            stride_us = kind.step_us
        else:
            stride_us = kind.every_us if isinstance(kind, Hopping) else kind.size_us
        return Grid(
            size_us=kind.size_us,
            stride_us=stride_us,
            pane_us=math.gcd(kind.size_us, stride_us),
            offset_us=kind.offset_us,
            is_cumulative=isinstance(kind, Cumulative),
        )

    def panes(self, times_us: Indices) -> Indices:
        """The start of the pane that each time is in."""
        return self._floor(times_us, self.pane_us)

    def starts(self, ends_us: Indices) -> Indices:
        """The starts of the windows that end at these times."""
        if self.is_cumulative:
            return self._floor(ends_us - 1, self.size_us)
        return ends_us - self.size_us

    def first_ends(self, panes_us: Indices) -> Indices:
        """The end of the first window that each pane belongs to."""
        if self.is_cumulative:
            return panes_us + self.stride_us
        return self._floor(panes_us - self.size_us, self.stride_us) + self.stride_us + self.size_us

    def last_ends(self, panes_us: Indices) -> Indices:
        """The end of the last window that each pane belongs to."""
        if self.is_cumulative:
            return self._floor(panes_us, self.size_us) + self.size_us
        return self._floor(panes_us, self.stride_us) + self.size_us

    def ends(self, panes_us: Indices, after_us: Indices, up_to_us: int) -> tuple[Indices, Indices]:
        """The ends of the windows that panes belong to: those later than one time, up to another.

        Also which pane each is of, as its place in `panes_us`.
        """
        first, last = self.first_ends(panes_us), self.last_ends(panes_us)
        skipped = np.maximum((after_us - first) // self.stride_us + 1, 0)
        first = first + skipped * self.stride_us
        counts = np.maximum((np.minimum(last, up_to_us) - first) // self.stride_us + 1, 0)
        which = np.repeat(np.arange(len(panes_us)), counts)
        return which, first[which] + ranges(np.zeros_like(counts), counts) * self.stride_us

    def _floor(self, times_us: Indices, unit_us: int) -> Indices:
        floor: Indices = (times_us - self.offset_us) // unit_us * unit_us + self.offset_us
        return floor
