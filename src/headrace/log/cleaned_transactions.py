"""What compaction must know of transactions, while it walks over the batches of a log in their order.

Records of an aborted transaction go. A marker goes too, in the end, but never before the last record of its
transaction: without it, a reader would take those for part of the next transaction. So a marker may go once
a walk has met no batch of its transaction; then it is kept for as long as tombstones are (see compaction.py).

The aborted transactions come from the log's indexes. One whose marker may go is no longer listed: nothing is
left of which a reader would have to be told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.log.marker import decode_marker

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.log.batch import Batch, BatchHeader
    from headrace.log.transaction_index import AbortedTransaction


class CleanedTransactions:
    """The transactions that a walk has come upon. Used from one thread, for one walk."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._expected = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
        """Aborted transactions that begin further on, the next one last."""
        self._aborted: dict[int, AbortedTransaction] = {}
        """By producer, the aborted transaction in which the walk is."""
        self._met: set[int] = set()
        """The producers of whose present transaction a batch was met."""
        self.still_aborted: list[AbortedTransaction] = []
        """Those whose marker was passed and has to stay, in the order of markers."""

    def is_aborted(self, header: BatchHeader) -> bool:
        """Take note of a batch with data, and say whether it is part of an aborted transaction."""
        if not header.is_transactional:
            return False
        self._advance(header.last_offset)
        self._met.add(header.producer_id)
        transaction = self._aborted.get(header.producer_id)
        return transaction is not None and header.base_offset <= transaction.last_offset

    def is_done(self, batch: Batch) -> bool:
        """Take note of a control batch, and say whether its transaction has no data left."""
        header = batch.header
        self._advance(header.last_offset)
        marker = decode_marker(header, batch.data)
        if marker is None:
            # Of an empty one the marker has gone already. One that ends no transaction is not ours to judge.
            return header.record_count == 0
        is_done = header.producer_id not in self._met
        self._met.discard(header.producer_id)
        transaction = self._aborted.pop(header.producer_id, None)
        if transaction is not None and not is_done:
            self.still_aborted.append(transaction)
        return is_done

    def _advance(self, offset: int) -> None:
        while self._expected and self._expected[-1].first_offset <= offset:
            transaction = self._expected.pop()
            self._aborted[transaction.producer_id] = transaction
