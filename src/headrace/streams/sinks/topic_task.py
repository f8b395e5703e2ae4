"""What a task on an executor does with its share of a batch: write it to topics, by one of two protocols.

A small share it hands back to the driver, which has a writer for it: see kept_writers.py, and for batches
that come to the driver without such tasks, handed.py.

Exactly once, in one transaction:

    fence all earlier writers of the share → read the ledger → write or skip
    begin → send the rows → send the ledger's new entry → commit

At most once, the ledger first:

    fence → read the ledger → write or skip
    begin → send the ledger's new entry → commit, then send the rows, without a transaction

A share without rows touches nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any, Final, Literal, NamedTuple

import pyarrow as pa

from headrace.failpoints import Failpoint, hit
from headrace.streams.python_worker import keep_what_is_loaded
from headrace.streams.sinks.connection import Connector, Headers, Record, ShareWriter, send_plainly
from headrace.streams.sinks.handed import Piece, read_pieces, to_bytes
from headrace.streams.sinks.ledger import Batch, Verdict, decide, entry_after
from headrace.streams.sinks.tasks import armed, task_number

RESULT: Final = "share int, row_count bigint, by_task boolean, records binary"
"""What a task answers with: one row."""


class Answer(NamedTuple):
    """What became of a share."""

    share: int
    row_count: int
    """How many rows were written, 0 where the share was written before; or are handed back."""
    by_task: bool
    """Whether the task has written the share, so that all other writers of it are fenced."""
    records: bytes | bytearray | None
    """What the driver has to write: record batches as a stream of Arrow's IPC format."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicTask:
    """How each task of a batch writes its share. Travels to the executors."""

    connector: Connector
    batch: Batch
    task_count: int
    guarantee: Literal["exactly-once", "at-most-once"]
    handed_bytes_max: int
    """How large a share may be that is handed back to the driver."""
    failpoints: tuple[Failpoint, ...] = ()

    def run(self, shares: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """See to the share: record batches of key and value, and of topic and headers where these differ."""
        keep_what_is_loaded("write")
        answer = self.answer(task_number(), shares)
        # Rows that are left unread would keep Spark from using this process again.
        for _ in shares:
            pass
        yield pa.RecordBatch.from_pydict(
            {
                "share": pa.array([answer.share], pa.int32()),
                "row_count": pa.array([answer.row_count], pa.int64()),
                "by_task": pa.array([answer.by_task], pa.bool_()),
                "records": pa.array([answer.records], pa.binary()),
            }
        )

    def answer(self, share: int, batches: Iterator[pa.RecordBatch]) -> Answer:
        """Hand the share back, or write it."""
        filled = (batch for batch in batches if batch.num_rows)
        held, size_bytes = [], 0
        for batch in filled:
            held.append(batch)
            size_bytes += batch.nbytes
            if size_bytes > self.handed_bytes_max:
                break
        if not held:
            return Answer(share, 0, by_task=False, records=None)
        if size_bytes <= self.handed_bytes_max:
            return Answer(share, sum(map(len, held)), by_task=False, records=to_bytes(held))
        with armed(self.failpoints):
            writer = ShareWriter(self.connector, share)
            try:
                return Answer(share, self.write(writer, chain(held, filled)), by_task=True, records=None)
            finally:
                writer.close()

    def write_handed(self, pieces: Sequence[Piece], writer: ShareWriter) -> int:
        """Write a share that was handed to the driver."""
        return self.write(writer, read_pieces(pieces))

    def write(self, writer: ShareWriter, batches: Iterable[pa.RecordBatch]) -> int:
        """Write the writer's share, unless it was written before."""
        if decide(writer.entry(), self.batch, self.task_count) is Verdict.SKIP:
            return 0
        hit("pipeline.task.begun")
        if self.guarantee == "exactly-once":
            return self._write_once(writer, self._records(batches))
        return self._write_at_most_once(writer, self._records(batches))

    def _write_once(self, writer: ShareWriter, records: Iterable[Record]) -> int:
        writer.begin()
        try:
            row_count = writer.send(records)
            hit("pipeline.task.produced")
            writer.commit(entry_after(self.batch, self.task_count))
        except BaseException:
            writer.abort()
            raise
        hit("pipeline.task.committed")
        return row_count

    def _write_at_most_once(self, writer: ShareWriter, records: Iterable[Record]) -> int:
        writer.begin()
        writer.commit(entry_after(self.batch, self.task_count))
        hit("pipeline.task.committed")
        row_count = send_plainly(self.connector, records)
        hit("pipeline.task.produced")
        return row_count

    def _records(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Record]:
        for batch in batches:
            columns = {name: batch.column(name).to_pylist() for name in batch.schema.names}
            topics = columns.get("topic") or repeat(self.connector.topic)
            headers = map(_pairs, columns["headers"]) if "headers" in columns else repeat(None)
            # Not strict: what repeats has no end.
            yield from zip(topics, columns["key"], columns["value"], headers, strict=False)


def _pairs(headers: list[dict[str, Any]] | None) -> Headers:
    return None if headers is None else [(header["key"], header["value"]) for header in headers]
