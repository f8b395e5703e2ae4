"""Write batches to topics, exactly or at most once: the driver's side.

The records of a batch are spread over as many tasks as the topic has partitions, by key; records without one
by all that they are. A retry therefore gives each task the same records, however the batch was cut before;
what a task does with them is told in topic_task.py, and how it knows whether they were written in ledger.py.
Shares of a small batch come back from the tasks, and are written here, by the same steps. The next small one
is not even spread: see handed.py.

How many tasks there are is decided at the first batch after a start, and holds until the next. A batch that
was begun with another number, because the topic has grown since, is finished with that one.

A writer that is shut out looks who has taken over. If it was another run of the pipeline, this one ends for
good. Else it was a task of its own that came late, another run that found itself replaced only then, or the
broker, which gave a transaction up: the batch is written again, by the tasks that are not through yet.

A run that is stopped begins nothing any more, and what it has open is aborted by fencing it. Its own threads,
which Spark knows nothing of, find themselves fenced or stopped, and end: nobody is at work when `close` is
through, unless the broker does not answer.
"""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

from headrace.errors import FaultError, InvalidProducerEpoch, PipelineReplaced
from headrace.failpoints import Failpoint, hit
from headrace.streams.local_tasks import local_directory
from headrace.streams.sinks.connection import Connector, Ledger, ShareWriter
from headrace.streams.sinks.context import WriteContext
from headrace.streams.sinks.gate import Gate
from headrace.streams.sinks.handed import Handed, Handing, HandOver, Piece, is_small, share_number
from headrace.streams.sinks.kept_writers import KeptWriters
from headrace.streams.sinks.ledger import (
    Batch,
    Entry,
    begun_task_count,
    check_all,
    claim_before,
    decide,
    is_settled,
    refuse_overtaken,
    refuse_replaced,
)
from headrace.streams.sinks.records import to_records, varying_columns
from headrace.streams.sinks.share_threads import ShareThreads
from headrace.streams.sinks.tasks import (
    armed,
    check_all_ran,
    failpoints_of_tasks,
    run_tasks,
    told,
    tried_again,
)
from headrace.streams.sinks.topic_task import RESULT, Answer, TopicTask
from headrace.streams.topic import Topic

CLAIM_S_MAX: Final = 3.0
"""How long a run that takes over may take from shutting others out of a share to saying so."""
_CLAIM_PAUSE_S: Final = 0.2
HANDED_BYTES_MAX: Final = 2**20
"""How large all shares of a batch may be together that tasks hand back to the driver."""
SHARES_KEPT_MAX: Final = 16
"""Up to how many shares the driver writes itself: a writer that is kept has a handful of threads."""
CLOSE_S_MAX: Final = 2.0
"""How long the broker may take to abort a transaction of an interrupted batch, and threads to end then."""

_HandedShare = tuple[int, Sequence[Piece]]


class TopicWriter:
    """Writes batches of rows to a topic and its side outputs."""

    def __init__(
        self,
        topic: Topic,
        context: WriteContext,
        *,
        partition_count: int,
        side_outputs: Sequence[Topic] = (),
    ) -> None:
        """The topics must exist; `partition_count` is the first one's."""
        assert context.guarantee != "at-least-once", "Spark's own sink does that"
        self._topic = topic
        self._side_outputs = side_outputs
        self._context = context
        self._guarantee: Literal["exactly-once", "at-most-once"] = context.guarantee
        self._connector = Connector(
            pipeline=context.pipeline,
            topic=topic.name,
            client_options={**context.client_options, "bootstrap.servers": context.bootstrap},
            transaction_s_max=context.transaction_s_max,
        )
        self._gate = Gate()
        self._kept = KeptWriters(self._open_share, self._gate)
        self._threads = ShareThreads()
        self._partition_count = self._task_count = partition_count
        self._spread_by: tuple[list[str], Column] | None = None
        """The columns of records, and what decides on their share. Those of all batches are the same."""
        self._handing: Handing | None = None
        self._is_first = True
        self._is_writing = False
        self._directory: Path | None = None
        """Where tasks may leave files, where the last batch was small enough to be written here."""

    def write(self, rows: DataFrame, batch_id: int) -> int:
        """Write the rows, unless they were written before; return how many were written now."""
        records = to_records(
            rows, self._topic, pipeline=self._context.pipeline, side_outputs=self._side_outputs
        )
        return self.write_records(records, batch_id)

    def write_records(self, records: DataFrame, batch_id: int) -> int:
        """The same for rows that are records: topic, key, value and headers."""
        batch = self._context.batch(batch_id, self._topic.name, is_first=self._is_first)
        hit("pipeline.batch")
        if batch.is_first:
            self._task_count = tried_again(
                partial(self._settle, batch), after=InvalidProducerEpoch, check=_pause
            )
            self._context.note_claim(self._topic.name)
        self._is_writing = True
        # In this order: `close` either keeps the batch from being begun, or sees that there is one.
        self._gate.check()
        try:
            # No entries of others are left: any from now on is that of a run that takes over.
            row_count = self._run(records, replace(batch, is_first=False, has_claimed=True))
        except (PipelineReplaced, InvalidProducerEpoch):
            # What is open now belongs to whoever has taken over.
            self._is_writing = False
            raise
        self._is_writing = self._is_first = False
        hit("pipeline.written")
        return row_count

    def close(self) -> None:
        """Abort the transactions that an interrupted write has left open: readers wait for their end.

        Another thread may be writing still. It begins nothing any more, and fails.
        """
        self._gate.close()
        self._kept.forget_all()
        if not self._is_writing:
            return
        self._is_writing = False
        # Where no broker answers, it will give them up by itself when they time out.
        with suppress(FaultError):
            for task in range(self._task_count):
                ShareWriter(self._connector, task, answer_s_max=CLOSE_S_MAX).close()
            self._threads.wait(CLOSE_S_MAX)

    def _run(self, records: DataFrame, batch: Batch) -> int:
        with failpoints_of_tasks() as failpoints:
            task = self._task(batch, failpoints)
            if self._directory is not None:
                return self._run_small(records, task, self._directory)
            rows = run_tasks(
                partial(self._shares, records, task),
                after=InvalidProducerEpoch,
                check=partial(self._refuse_taken_over, batch),
            )
            answers = [Answer(*row) for row in rows]
            check_all_ran(batch.pipeline, (answer.share for answer in answers), self._task_count)
            is_handed = task.handed_bytes_max > 0 and not any(answer.by_task for answer in answers)
            self._directory = local_directory(records.sparkSession) if is_handed else None
            with armed(failpoints):
                return self._finish(task, answers)

    def _run_small(self, records: DataFrame, task: TopicTask, directory: Path) -> int:
        """Have all records handed over, and write them here."""
        handing = self._handing or self._make_handing(records, directory)
        try:
            with told():
                handed = handing.collect(records)
            if not is_small(handed, HANDED_BYTES_MAX):
                # The next one is expected to be as large.
                self._directory = None
            with armed(task.failpoints):
                return self._write_handed(task, _pieces_by_share(handed))
        finally:
            # Also of tasks that have left files before another one failed.
            shutil.rmtree(handing.directory, ignore_errors=True)

    def _make_handing(self, records: DataFrame, directory: Path) -> Handing:
        columns, share = self._spread(records)
        own = directory / uuid.uuid4().hex
        hand_over = HandOver(bytes_max=HANDED_BYTES_MAX, directory=str(own))
        # The number of shares is settled by now, and stays.
        self._handing = Handing(columns, share_number(share, self._task_count), hand_over)
        return self._handing

    def _task(self, batch: Batch, failpoints: tuple[Failpoint, ...] = ()) -> TopicTask:
        is_here = self._guarantee == "exactly-once" and self._task_count <= SHARES_KEPT_MAX
        return TopicTask(
            connector=self._connector,
            batch=batch,
            task_count=self._task_count,
            guarantee=self._guarantee,
            handed_bytes_max=HANDED_BYTES_MAX // self._task_count if is_here else 0,
            failpoints=failpoints,
        )

    def _shares(self, records: DataFrame, task: TopicTask) -> DataFrame:
        """What the tasks answer, one row each. They run when it is asked for."""
        columns, share = self._spread(records)
        spread = records.select(*columns).repartition(self._task_count, share)
        return spread.mapInArrow(task.run, RESULT)

    def _spread(self, records: DataFrame) -> tuple[list[str], Column]:
        if self._spread_by is None:
            columns = varying_columns(records, self._topic.name)
            self._spread_by = columns, _share(columns)
        return self._spread_by

    def _finish(self, task: TopicTask, answers: Sequence[Answer]) -> int:
        """Write what was handed back; return how many rows of the batch were written."""
        self._kept.forget(answer.share for answer in answers if answer.by_task)
        handed = {answer.share: [answer.records] for answer in answers if answer.records is not None}
        by_tasks = sum(answer.row_count for answer in answers if answer.records is None)
        return by_tasks + self._write_handed(task, handed)

    def _write_handed(self, task: TopicTask, handed: Mapping[int, Sequence[Piece]]) -> int:
        return sum(self._at_once(partial(self._written, task), list(handed.items())))

    def _at_once(self, work: Callable[[_HandedShare], int], shares: Sequence[_HandedShare]) -> list[int]:
        """Shares wait for the broker, not for each other."""
        return self._threads.run(work, shares)

    def _written(self, task: TopicTask, handed: _HandedShare) -> int:
        share, pieces = handed
        write = partial(task.write_handed, pieces)
        return tried_again(
            partial(self._kept.use, share, write),
            after=InvalidProducerEpoch,
            check=partial(self._refuse_taken_over, task.batch),
        )

    def _open_share(self, share: int) -> ShareWriter:
        # A transaction that it can't abort, the next writer of the share does.
        return ShareWriter(self._connector, share, abort_s_max=CLOSE_S_MAX)

    def _settle(self, batch: Batch) -> int:
        """Into how many shares to spread the first batch, and all that follow it."""
        entries = self._entries(stable=False)
        refuse_replaced(entries, batch)
        if not is_settled(entries, batch, self._partition_count):
            # Somebody may still be writing shares of another spread. From here on he can't.
            entries = [self._claim(task, batch) for task in range(self._partition_count)]
        task_count = begun_task_count(entries, batch) or self._partition_count
        check_all(entries, batch, task_count)
        return task_count

    def _claim(self, task: int, batch: Batch) -> Entry:
        """Shut all others out of a share, and put an entry of ours there, if there is none."""
        self._gate.check()
        writer = ShareWriter(self._connector, task)
        try:
            if task > 0:
                refuse_overtaken(writer.first_entry(), batch)
            entry = writer.entry()
            if entry is not None and entry.query_id == batch.query_id:
                return entry
            decide(entry, batch, self._partition_count)
            claim = claim_before(batch, self._partition_count)
            self._gate.check()
            writer.begin()
            writer.commit(claim)
            return claim
        finally:
            writer.close()

    def _entries(self, *, stable: bool) -> list[Entry | None]:
        ledger = Ledger(self._connector, stable=stable)
        try:
            return ledger.entries(range(self._partition_count))
        finally:
            ledger.close()

    def _refuse_taken_over(self, batch: Batch) -> None:
        """Raise if another run has taken over. It says so in the ledger, a moment after it has fenced us."""
        self._kept.forget_all()
        deadline_s = time.monotonic() + CLAIM_S_MAX
        while time.monotonic() < deadline_s:
            self._gate.check()
            refuse_replaced(self._entries(stable=True), batch)
            _pause()


def _pause() -> None:
    time.sleep(_CLAIM_PAUSE_S)


def _pieces_by_share(handed: Sequence[Handed]) -> dict[int, list[Piece]]:
    pieces: dict[int, list[Piece]] = {}
    for each in handed:
        pieces.setdefault(each.share, []).append(each.piece)
    return pieces


def _share(columns: Sequence[str]) -> Column:
    """What decides to which task a record of these columns goes."""
    whole = F.xxhash64(*(name for name in columns if name != "key"))
    return F.when(F.col("key").isNull(), whole).otherwise(F.xxhash64("key"))
