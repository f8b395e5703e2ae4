"""Which transactions of a partition are not settled yet, and so up to where a committed reader may read.

A transaction begins in a partition with its producer's first transactional batch and ends with a marker. It
is unsettled while it is open, and after that for as long as its marker is not below the high watermark: a
loss of power could take the marker back. Where the marker's writer knows that it would be written again, to
the same effect, the transaction is settled by the marker alone. The last stable offset is where the first
unsettled transaction begins, or else the high watermark.

What has ended is forgotten once the high watermark has passed its marker. Where nobody ever asks, two
neighbours become one that is settled with the later of them, so that a bounded number is kept; that may hold
the last stable offset back, never let it run ahead.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

ENDED_COUNT_MAX: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedTransaction:
    """A transaction from its first offset to that of its marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    commits: bool
    is_settled: bool = False
    """Whether the loss of the marker would change nothing."""


class UnsettledTransactions:
    """The unsettled transactions of one partition. Used from one thread."""

    def __init__(self, *, ended_count_max: int = ENDED_COUNT_MAX) -> None:
        self._ended_count_max = ended_count_max
        self._open: dict[int, int] = {}
        """By producer id, the first offset; in the order of the offsets, because that is how they begin."""
        self._ended: deque[tuple[int, int]] = deque()
        """First offset and marker's offset, in the order of the markers."""

    def begin(self, producer_id: int, first_offset: int) -> None:
        """Note that a producer's transaction begins; those in a snapshot come in the order of offsets."""
        self._open[producer_id] = first_offset

    def end(self, transaction: EndedTransaction) -> None:
        """Note that a transaction has ended."""
        self._open.pop(transaction.producer_id, None)
        if transaction.is_settled:
            return
        self._ended.append((transaction.first_offset, transaction.last_offset))
        if len(self._ended) > self._ended_count_max:
            first, _ = self._ended.popleft()
            next_first, marker_offset = self._ended.popleft()
            self._ended.appendleft((min(first, next_first), marker_offset))

    def first_offset_of(self, producer_id: int) -> int | None:
        """Where the producer's open transaction begins."""
        return self._open.get(producer_id)

    @property
    def open_transactions(self) -> dict[int, int]:
        """By producer id, the first offsets of those that are open: a copy."""
        return dict(self._open)

    @property
    def first_open_offset(self) -> int | None:
        """Where the first open transaction begins."""
        return next(iter(self._open.values()), None)

    def last_stable_offset(self, high_watermark: int) -> int:
        """The offset below which every transaction is settled. High watermarks never go back."""
        if not self._ended and not self._open:
            return high_watermark
        while self._ended and self._ended[0][1] < high_watermark:
            self._ended.popleft()
        stable = min((first for first, _ in self._ended), default=high_watermark)
        return min(high_watermark, stable, next(iter(self._open.values()), high_watermark))
