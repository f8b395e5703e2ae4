"""What windows over card transactions must come to, computed apart, in NumPy.

Which rows are late depends on where batches end, so that is an argument: the offsets that each batch of the
measured run has come to. The rules are those of docs/how-to/windows.md, and for the peer those of Spark: its
watermark is that of the newest event of all partitions, and a row is judged by the watermark of the batch
before the last.

Answers are tables of integers, one row for each result, sorted: card, start and end in ms, count, cents.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cards import PARTITIONS, transactions
from headrace.streams.progress import Progress

MINUTE_MS: Final = 60_000
BEGINNING_MS: Final = -(2**62)

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """The transactions of a topic, in the order in which they were sent."""

    card: Ints
    cents: Ints
    at_ms: Ints

    @property
    def partition(self) -> Ints:
        """Where each is."""
        return self.card % PARTITIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermarks:
    """What the watermark was."""

    before: Ints
    """By which each event is judged."""
    last: int
    """After the last batch."""


def events_of(count: int, cards: int) -> Events:
    """The transactions that `fill` writes."""
    rows = np.empty((count, 3), np.int64)
    for number, card, cents, _lat, _lon, at_ms in transactions(count, cards):
        rows[number] = int(card[5:]), cents, at_ms
    return Events(card=rows[:, 0], cents=rows[:, 1], at_ms=rows[:, 2])


def watermarks(events: Events, batches: Sequence[Progress], delay_ms: int) -> Watermarks:
    """Ours: the least of the partitions."""
    numbers = _batch_numbers(events, batches)
    newest = np.stack([_newest(events, numbers, partition, len(batches)) for partition in range(PARTITIONS)])
    seen = np.where(newest == BEGINNING_MS, 2**62, newest).min(axis=0)
    after = np.maximum.accumulate(np.where(seen == 2**62, BEGINNING_MS, seen - delay_ms))
    before = np.concatenate([[BEGINNING_MS], after])
    return Watermarks(before=before[numbers], last=int(after[-1]))


def watermarks_of_spark(events: Events, batches: Sequence[Progress], delay_ms: int) -> Watermarks:
    """Spark's: the greatest of the partitions, and a batch later."""
    numbers = _batch_numbers(events, batches)
    newest = [_newest(events, numbers, partition, len(batches)) for partition in range(PARTITIONS)]
    after = np.stack(newest).max(axis=0) - delay_ms
    before = np.concatenate([[BEGINNING_MS, BEGINNING_MS], after])
    return Watermarks(before=before[numbers], last=int(after[-1]))


def is_late(events: Events, size_ms: int, before: Ints) -> NDArray[np.bool_]:
    """Whether the tumbling window of each event had ended."""
    return events.at_ms // size_ms * size_ms + size_ms <= before


def tumbling(events: Events, size_ms: int, kept: NDArray[np.bool_], until: int) -> Ints:
    """Count and sum of the windows that have ended by then."""
    card, start = events.card[kept], events.at_ms[kept] // size_ms * size_ms
    order = np.lexsort((start, card))
    first = _firsts(card[order], start[order])
    columns = np.stack([card, start, start + size_ms, events.cents[kept]], axis=1)[order]
    return _complete(columns, first, until)


def sessions(events: Events, gap_ms: int, until: int) -> Ints:
    """Count and sum of the sessions that have ended by then; none of the events is late."""
    order = np.lexsort((events.at_ms, events.card))
    card, at_ms, cents = events.card[order], events.at_ms[order], events.cents[order]
    is_first = np.concatenate([[True], (card[1:] != card[:-1]) | (np.diff(at_ms) >= gap_ms)])
    first = np.flatnonzero(is_first)
    last = np.append(first[1:], len(card)) - 1
    ends = np.repeat(at_ms[last] + gap_ms, last - first + 1)
    return _complete(np.stack([card, at_ms, ends, cents], axis=1), first, until)


def sliding(events: Events, size_ms: int, until: int) -> Ints:
    """For each event before then, count and sum of those of its card in the time up to it."""
    order = np.lexsort((events.at_ms, events.card))
    card, at_ms, cents = events.card[order], events.at_ms[order], events.cents[order]
    first_ms = int(at_ms.min())
    line = card * (int(at_ms.max()) - first_ms + 2 * size_ms) + (at_ms - first_ms)
    since = np.searchsorted(line, line - size_ms, side="left")
    through = np.searchsorted(line, line, side="right")
    spent = np.concatenate([[0], np.cumsum(cents)])
    rows = np.stack([card, at_ms - size_ms, at_ms, through - since, spent[through] - spent[since]], axis=1)
    return sorted_rows(rows[at_ms < until])


def closed_by_key(events: Events, size_ms: int, grace_ms: int) -> Ints:
    """Those windows that Quix Streams closes: each by the newest event of its own card."""
    everything = tumbling(events, size_ms, np.ones(len(events.card), bool), 2**62)
    newest = np.full(int(events.card.max()) + 1, BEGINNING_MS)
    np.maximum.at(newest, events.card, events.at_ms)
    return everything[everything[:, 2] + grace_ms <= newest[everything[:, 0]]]


def sorted_rows(rows: Ints) -> Ints:
    """In one order, so that they can be compared."""
    return rows[np.lexsort(rows.T[::-1])]


def _complete(events: Ints, first: Ints, until: int) -> Ints:
    """The windows that have ended, of sorted events: card, start, end, cents. `first` is where they begin."""
    counts = np.diff(np.append(first, len(events)))
    sums = np.add.reduceat(events[:, 3], first)
    rows = np.column_stack([events[first, :3], counts, sums])
    return sorted_rows(rows[rows[:, 2] <= until])


def _firsts(*sorted_columns: Ints) -> Ints:
    changes = [column[1:] != column[:-1] for column in sorted_columns]
    return np.flatnonzero(np.concatenate([[True], np.logical_or.reduce(changes)]))


def _batch_numbers(events: Events, batches: Sequence[Progress]) -> Ints:
    """The index of the batch that each event was in."""
    numbers = np.zeros(len(events.card), np.int64)
    for partition in range(PARTITIONS):
        ends = [next(iter(each.next_offsets.values())).get(partition, 0) for each in batches]
        here = events.partition == partition
        numbers[here] = np.searchsorted(ends, np.arange(int(here.sum())), side="right")
    return numbers


def _newest(events: Events, numbers: Ints, partition: int, batch_count: int) -> Ints:
    """The newest event of a partition up to the end of each batch."""
    found = np.full(batch_count, BEGINNING_MS)
    here = events.partition == partition
    np.maximum.at(found, numbers[here], events.at_ms[here])
    return np.maximum.accumulate(found)
