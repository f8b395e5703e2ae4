"""What a task on an executor does with its share of a batch: write it to topics, by one of two protocols.

Exactly once, in one transaction:

    fence all earlier writers of the share → read the ledger → write or skip
    begin → send the rows → send the ledger's new entry → commit

At most once, the ledger first:

    fence → read the ledger → write or skip
    begin → send the ledger's new entry → commit, then send the rows, without a transaction

A task without rows touches nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any, Final, Literal

import pyarrow as pa

from headrace.failpoints import Failpoint, hit
from headrace.streams.sinks.connection import Connector, Headers, Record, ShareWriter, send_plainly
from headrace.streams.sinks.ledger import Batch, Verdict, decide, entry_after
from headrace.streams.sinks.tasks import armed, task_number

RESULT: Final = "task int, row_count bigint"
"""What a task answers with: one row. `row_count` is 0 where the share was written before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicTask:
    """How each task of a batch writes its share. Travels to the executors."""

    connector: Connector
    batch: Batch
    task_count: int
    guarantee: Literal["exactly-once", "at-most-once"]
    failpoints: tuple[Failpoint, ...] = ()

    def run(self, shares: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the share: record batches of key and value, and of topic and headers where these differ."""
        task = task_number()
        with armed(self.failpoints):
            row_count = self._write(task, shares)
        # Rows that are left unread would keep Spark from using this process again.
        for _ in shares:
            pass
        yield pa.RecordBatch.from_pydict(
            {"task": pa.array([task], pa.int32()), "row_count": pa.array([row_count], pa.int64())}
        )

    def _write(self, task: int, shares: Iterator[pa.RecordBatch]) -> int:
        filled = (share for share in shares if share.num_rows)
        first = next(filled, None)
        if first is None:
            return 0
        records = self._records(chain([first], filled))
        writer = ShareWriter(self.connector, task)
        try:
            if decide(writer.entry(), self.batch, self.task_count) is Verdict.SKIP:
                return 0
            hit("pipeline.task.begun")
            if self.guarantee == "exactly-once":
                return self._write_once(writer, records)
            return self._write_at_most_once(writer, records)
        finally:
            writer.close()

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

    def _records(self, shares: Iterable[pa.RecordBatch]) -> Iterator[Record]:
        for share in shares:
            columns = {name: share.column(name).to_pylist() for name in share.schema.names}
            topics = columns.get("topic") or repeat(self.connector.topic)
            headers = map(_pairs, columns["headers"]) if "headers" in columns else repeat(None)
            # Not strict: what repeats has no end.
            yield from zip(topics, columns["key"], columns["value"], headers, strict=False)


def _pairs(headers: list[dict[str, Any]] | None) -> Headers:
    return None if headers is None else [(header["key"], header["value"]) for header in headers]
