"""Pipelines as Spark queries: start them, see how they do, stop them.

A query that fails takes the others down with it: half of a set of pipelines, running on unnoticed, is what
nobody wants to find in the morning.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any, Final, NoReturn

from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace.config import StreamsConfig
from headrace.errors import HeadraceError, PipelineError, PipelineFailed
from headrace.streams.admin import ask_partition_counts, ask_starts, ensure_topics
from headrace.streams.batch_length import batch_length
from headrace.streams.buckets.reports import OperatorReports, collected, with_operators
from headrace.streams.building import build_stream
from headrace.streams.check import keep_plan
from headrace.streams.checkpoint import checkpoint_path, clear_unfinished_writes
from headrace.streams.client_options import portable_options
from headrace.streams.describe import describe_rows
from headrace.streams.failure import first_line, passing_failure, realtime_refusal
from headrace.streams.given_up import clear_given_up_state, note_given_up
from headrace.streams.log_offsets import ask_ends
from headrace.streams.pipeline import Pipeline, Target
from headrace.streams.plan import DEAD_LETTERS_PARTITION_COUNT, Plan
from headrace.streams.plan_mode import PlanMode, reads_streams_only
from headrace.streams.progress import Progress, parse_progress
from headrace.streams.progress_log import has_batch, read_progress_log
from headrace.streams.recent import REALTIME_SETTING
from headrace.streams.resumes import Resume
from headrace.streams.session import JAVA_GONE, log_path
from headrace.streams.side_files import SideFiles
from headrace.streams.sinks.context import WriteContext, read_query_id
from headrace.streams.sinks.foreach_batch import ForeachBatch, Write, call_for_each_batch
from headrace.streams.sinks.plain_topic import PlainTopicWriter, producer_options
from headrace.streams.sinks.records import to_records
from headrace.streams.sinks.refused import REFUSED
from headrace.streams.sinks.refused_topic import STORE, refused_topics
from headrace.streams.sinks.side_rows import SideOutput, with_side_outputs
from headrace.streams.sinks.stores import check_installed, store_of
from headrace.streams.sinks.table_rows import table_rows
from headrace.streams.sinks.topics import TopicWriter
from headrace.streams.sinks.writers import topic_writer
from headrace.streams.source import Reader, read_dead_letters, read_stream
from headrace.streams.starts import Starts, settle_starts
from headrace.streams.topic import Topic

STARTED_S_MAX: Final = 120.0
"""How long a query may take from its start to its first task."""
DEAD_LETTERS_EVERY_S: Final = 5
"""How often micro-batches look for dead letters: nobody waits for them, and each batch costs some. Where a
run reads several topics, those of each are looked for less often, so that all cost no more than one."""
KEPT_BACK_S_MAX: Final = 30.0
"""How long queries for dead letters are kept back at most: see `start`."""
BEGUN_ANEW_MAX: Final = 3
"""How often a query is started again by itself: see `_begin_anew`."""
_STARTED_PAUSE_S: Final = 0.05


@dataclass(slots=True, kw_only=True)
class Queries:
    """Queries that run together. Not safe to share between threads."""

    session: SparkSession
    config: StreamsConfig
    realtime: bool
    until_now: bool = False
    """Whether queries end once they have processed what there is: see `await_done`."""
    running: dict[str, StreamingQuery] = field(default_factory=dict)
    _batches: dict[str, ForeachBatch] = field(default_factory=dict)
    """Of the queries that don't write through Spark's own sink."""
    _companions: set[str] = field(default_factory=set)
    """The queries that take dead letters."""
    _read: dict[str, list[Topic]] = field(default_factory=dict)
    """What each query reads; those for dead letters first."""
    _starts: Mapping[str, Starts] = field(default_factory=dict)
    _begin: dict[str, Callable[[], None]] = field(default_factory=dict)
    """Starts each of the queries."""
    _reports: dict[str, list[OperatorReports]] = field(default_factory=dict)
    """What the operators of each query have counted."""
    _refused: dict[str, SideOutput] = field(default_factory=dict)
    """What writes the rows that the store of a query has refused."""
    _kept_back: dict[str, Callable[[], None]] = field(default_factory=dict)
    """Starts those of the queries that are yet to come."""
    _kept_back_until_s: float = 0.0
    _begun_anew: Counter[str] = field(default_factory=Counter)
    """How often each query was started again."""
    _resumes: list[Resume] = field(default_factory=list)
    """Those that `resumes` has not returned yet."""
    _reported: dict[str, tuple[int, str]] = field(default_factory=dict)
    """The last report of each query that `progress` has returned."""

    def start(
        self, plan: Plan, dead_letters_of: Collection[Topic] | None = None, *, pipelines_first: bool = False
    ) -> None:
        """Start every query of the plan; if one can't start, none is left running.

        `dead_letters_of` names the topics whose dead letters are taken here; None for all that are read. In
        its first batch Spark loads and compiles most of what it ever will, and whoever waits for a pipeline
        would wait for dead letters, too: with `pipelines_first` they are left to `start_kept_back`. Not in
        real-time mode: whether there is a slot for each task has to be seen at once.
        """
        topics = plan.read_topics if dead_letters_of is None else dead_letters_of
        self._companions = {topic.dead_letters_query for topic in topics}
        # Also of those that are taken later, or elsewhere: they must not begin behind the pipelines.
        self._read = {topic.dead_letters_query: [topic] for topic in (*plan.read_topics, *topics)}
        self._read |= {name: list(parameters.values()) for name, parameters in plan.sources.items()}
        self._settle()
        # From where is settled, so the order means nothing but that pipelines are not kept waiting.
        pipelines: dict[str, Callable[[], None]] = {
            pipeline.name: partial(self._start_pipeline, pipeline, plan.sources[pipeline.name])
            for pipeline in plan.pipelines
        }
        companions: dict[str, Callable[[], None]] = {
            topic.dead_letters_query: partial(self._start_dead_letters, topic) for topic in topics
        }
        self._begin = pipelines | companions
        # Whoever comes back to a batch that failed may fail again: what its dead letters tell must not wait.
        if pipelines_first and not self.realtime and not any(map(self._has_open_batch, plan.names)):
            self._kept_back = companions
            self._kept_back_until_s = time.monotonic() + KEPT_BACK_S_MAX
        try:
            for name, begin in self._begin.items():
                if name not in self._kept_back:
                    begin()
        except BaseException:
            # Why it could not start matters more than that another can't be stopped in time.
            with suppress(*JAVA_GONE):
                self.stop()
            raise

    def start_kept_back(self) -> None:
        """Start what `start` has left out, if it is time: to be called again and again."""
        if not self._kept_back:
            return
        are_through = all(self._has_reported(name) for name in self.running)
        if are_through or time.monotonic() > self._kept_back_until_s:
            while self._kept_back:
                name, begin = self._kept_back.popitem()
                with self._java_is_there(name):
                    begin()

    def _has_open_batch(self, name: str) -> bool:
        """Whether a batch of the query was begun and not finished."""
        checkpoint = checkpoint_path(self.config, name)
        if not has_batch(checkpoint):
            return False
        log = read_progress_log(checkpoint)
        return any(batch.number >= log.next_batch for batch in log.batches)

    def await_started(self, stop: threading.Event | None = None) -> None:
        """Wait until each query has a task running, or has nothing to do; raise if one has failed."""
        stop = stop or threading.Event()
        deadline_s = time.monotonic() + STARTED_S_MAX
        while not all(self._is_started(name) for name in self.running):
            self.check()
            if time.monotonic() > deadline_s:
                raise PipelineFailed(
                    f"{', '.join(self.running)} did not start within {STARTED_S_MAX:.0f} s: real-time mode "
                    "needs a task slot for each partition that is read and each that keeps state"
                )
            if stop.wait(_STARTED_PAUSE_S):
                return

    def await_done(self, within_s: float) -> None:
        """Wait until the queries have processed what there was when they started; raise if one has failed."""
        deadline_s = time.monotonic() + within_s
        for name in self.running:
            while not self._is_done(name, deadline_s):
                if time.monotonic() > deadline_s:
                    raise PipelineFailed(f"{name} has not processed what there was within {within_s:.0f} s")
        self.running.clear()

    def _is_done(self, name: str, deadline_s: float) -> bool:
        with self._java_is_there(name):
            try:
                left_s = max(1, int(deadline_s - time.monotonic()))
                return bool(self.running[name].awaitTermination(left_s))
            except StreamingQueryException as error:
                self._begin_anew(name, error)
                return False

    def check(self) -> None:
        """Raise if a query has failed or ended."""
        for name, query in list(self.running.items()):
            with self._java_is_there(name):
                is_active, error = query.isActive, query.exception()
            if error is not None:
                self._begin_anew(name, error)
            elif not is_active:
                raise PipelineFailed(f"{name} has ended by itself; Spark's log is {log_path(self.config)}")

    def progress(self) -> list[Progress]:
        """What the queries have reported since the last call, each in the order of its batches."""
        return [report for name, query in self.running.items() for report in self._new_reports(name, query)]

    def resumes(self) -> list[Resume]:
        """The queries that were started again since the last call."""
        taken, self._resumes = self._resumes, []
        return taken

    def _new_reports(self, name: str, query: StreamingQuery) -> list[Progress]:
        """Read as JSON: PySpark's own objects ask Java for each number, some hundred times a report."""
        new: deque[Progress] = deque()
        with self._java_is_there(name):
            reports = query._jsq.recentProgress()  # noqa: SLF001 - see above
            for index in range(len(reports) - 1, -1, -1):
                report = parse_progress(name, json.loads(reports[index].json()))
                if self._reported.get(name) == (report.batch_id, report.timestamp):
                    break
                new.appendleft(self._counted(report))
        if new:
            self._reported[name] = (new[-1].batch_id, new[-1].timestamp)
        return list(new)

    def stop(self) -> None:
        """Stop the queries. In real-time mode the open batch is given up and will be run again."""
        for query in self.running.values():
            query.stop()
        self.running.clear()
        self.release()

    def release(self) -> None:
        """Abort what stopped queries have left open, so that readers need not wait for it to time out."""
        for batches in self._batches.values():
            batches.close()
        self._batches.clear()

    def _settle(self) -> None:
        self._starts = settle_starts(
            self.config,
            self._read,
            partial(ask_starts, self.config),
            partial(ask_partition_counts, self.config),
        )

    def _begin_anew(self, name: str, error: StreamingQueryException) -> None:
        """Start a query again that failed for a reason that passes."""
        reason = passing_failure(error)
        if reason is None or self._begun_anew[name] == BEGUN_ANEW_MAX:
            self._fail(name, error)
        self._begun_anew[name] += 1
        self._settle()
        self._begin[name]()
        self._resumes.append(Resume(query=name, reason=reason))

    def _start_dead_letters(self, topic: Topic) -> None:
        name = topic.dead_letters_query
        records = read_dead_letters(self.session, topic, self._reader(name))
        target = Topic(name=topic.dead_letters)
        # Spark begins batches at multiples of their interval: those of the same one would all begin at once.
        number = sorted(self._companions).index(name)
        every_s = DEAD_LETTERS_EVERY_S * len(self._companions) + number
        self._write(name, records, target, every_ms=every_s * 1_000)

    def _start_pipeline(self, pipeline: Pipeline[Any], sources: Mapping[str, Topic]) -> None:
        reader = replace(self._reader(pipeline.name), patience_ms=pipeline.patience_ms)
        with _mode(self.session, realtime=self.realtime), self._explained(pipeline.name):
            frames = {
                parameter: read_stream(self.session, topic, reader) for parameter, topic in sources.items()
            }
            with collected() as self._reports[pipeline.name]:
                rows, built = build_stream(pipeline, frames, self.config, partial(ask_ends, self.config))
            plan = describe_rows(rows, frames, sources, self.config, built.operators)
            keep_plan(self.config, pipeline, plan, realtime=self.realtime)
            self._write_result(pipeline, rows, built.side_topics)

    def _write_result(
        self, pipeline: Pipeline[Any], rows: DataFrame, side_topics: Mapping[str, Topic]
    ) -> None:
        name, target = pipeline.name, pipeline.writes
        if self.realtime and not isinstance(target, Topic):
            raise PipelineError(
                f"pipeline {name} writes the {target.noun} {target.name}, which real-time mode can't: run it "
                "without --realtime, in micro-batches, or write a topic"
            )
        side_topics = {**side_topics, **refused_topics(name, target)}
        if side_topics:
            ensure_topics(self.config, dict.fromkeys(_names(side_topics), DEAD_LETTERS_PARTITION_COUNT))
        written = written_rows(pipeline, rows)
        self._write(name, written, target, every_ms=pipeline.patience_ms, side_topics=side_topics)

    def _reader(self, query: str) -> Reader:
        return Reader(name=query, config=self.config, starts=self._starts[query], realtime=self.realtime)

    def _write(
        self,
        name: str,
        rows: DataFrame,
        target: Target,
        *,
        every_ms: int = 0,
        side_topics: Mapping[str, Topic] = MappingProxyType({}),
    ) -> None:
        checkpoint = checkpoint_path(self.config, name)
        clear_unfinished_writes(checkpoint)
        clear_given_up_state(checkpoint)
        if self.realtime:
            note_given_up(checkpoint)
        writer = (
            rows.writeStream.queryName(name)
            .option("checkpointLocation", f"file://{checkpoint}")
            .outputMode("update")
        )
        guarantee = self.config.guarantee_of(realtime=self.realtime)
        if guarantee == "at-least-once" and isinstance(target, Topic) and not side_topics:
            writer = writer.format("kafka").options(**producer_options(self.config))
        else:
            if (before := self._batches.get(name)) is not None:
                # The query is begun anew; nobody calls it any more, and it may have writers open.
                before.close()
            self._batches[name] = ForeachBatch(
                lambda: self._open(name, target, side_topics),
                PlanMode(checkpoint) if reads_streams_only(rows) else None,
            )
            writer = call_for_each_batch(writer, self._batches[name])
        if self.realtime:
            number = list(self._begin).index(name)
            length = batch_length(self.config.realtime_batch_s, number, is_patient=every_ms > 0)
            writer = writer.trigger(realTime=length)  # type: ignore[call-overload] # missing in its overloads
        elif self.until_now:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{every_ms} milliseconds")
        self.running[name] = writer.start()

    def _open(
        self, query: str, target: Target, side_topics: Mapping[str, Topic]
    ) -> tuple[Write, Callable[[], None]]:
        context = self._context(query)
        checkpoint = checkpoint_path(self.config, query)
        side_outputs = []
        for operator, topic in side_topics.items():
            own = replace(context, pipeline=f"{query}.{operator}", operator=operator)
            files, open_writer = SideFiles.of(checkpoint, operator), partial(self._topic_writer, topic, own)
            side_outputs.append(SideOutput(files=files, open_writer=open_writer))
            if operator == REFUSED:
                self._refused[query] = side_outputs[-1]
        if isinstance(target, Topic):
            main = self._topic_writer(target, context)
            return with_side_outputs(main.write_records, main.close, side_outputs)
        table = store_of(target).writer(target, context)
        return with_side_outputs(table.write, table.close, side_outputs)

    def _topic_writer(self, topic: Topic, context: WriteContext) -> TopicWriter | PlainTopicWriter:
        if context.guarantee == "at-least-once":
            return PlainTopicWriter(topic, context.pipeline, producer_options(self.config))
        return topic_writer(topic, context)

    def _context(self, query: str) -> WriteContext:
        checkpoint = checkpoint_path(self.config, query)
        query_id = read_query_id(checkpoint)
        return WriteContext(
            # Runs that read one topic may each take its dead letters, from checkpoints of their own.
            pipeline=f"{query}.{query_id}" if query in self._companions else query,
            query_id=query_id,
            bootstrap=self.config.bootstrap,
            client_options=portable_options(self.config.client_options),
            guarantee=self.config.guarantee_of(realtime=self.realtime),
            checkpoint=checkpoint,
            transaction_s_max=self.config.transaction_s_max,
        )

    def _is_started(self, name: str) -> bool:
        if self._has_reported(name):
            return True
        # Spark runs a query's jobs in a group named after the query's run.
        group = str(self.running[name].runId)
        return bool(self.session.sparkContext.statusTracker().getJobIdsForGroup(group))

    def _has_reported(self, name: str) -> bool:
        """Whether it has finished a batch, or has found that there is none to run."""
        query = self.running[name]
        with self._java_is_there(name):
            # As in `_new_reports`, PySpark's own object is not wanted.
            if query._jsq.lastProgress() is not None:  # noqa: SLF001 - see above
                return True
            return bool(query.status["message"] == "Waiting for data to arrive")

    @contextmanager
    def _java_is_there(self, name: str) -> Iterator[None]:
        try:
            yield
        except JAVA_GONE as gone:
            raise PipelineFailed(
                f"{name} failed: Spark's Java process is gone, killed or crashed; its logs are in "
                f"{log_path(self.config).parent}"
            ) from gone

    @contextmanager
    def _explained(self, name: str) -> Iterator[None]:
        try:
            yield
        except AnalysisException as error:
            self._fail(name, error)

    def _fail(self, name: str, error: AnalysisException | StreamingQueryException) -> NoReturn:
        refusal = realtime_refusal(error)
        if refusal is not None:
            raise PipelineError(
                f"pipeline {name} can't run in real-time mode: {refusal}; run it without --realtime, in "
                "micro-batches"
            ) from error
        if isinstance(error, AnalysisException):
            raise PipelineError(f"pipeline {name} can't run: {first_line(error)}") from error
        cause: BaseException | None = self._batches[name].error if name in self._batches else None
        if isinstance(cause, HeadraceError):
            raise cause
        raise PipelineFailed(
            f"{name} failed: {first_line(cause or error)} (Spark's log is {log_path(self.config)})"
        ) from error

    def _counted(self, report: Progress) -> Progress:
        """With what our operators have counted, and how many rows our own writer has written."""
        if not report.is_batch:
            return report
        told = [(each.operator, each.batches()) for each in self._reports.get(report.query, ())]
        report = self._with_refused(with_operators(report, told))
        if report.query not in self._batches:
            return report
        written = self._batches[report.query].written.get(report.batch_id)
        return replace(report, output_row_count=written)

    def _with_refused(self, report: Progress) -> Progress:
        refused = self._refused.get(report.query)
        count = 0 if refused is None else refused.written.get(report.batch_id, 0)
        if not count:
            return report
        return replace(report, operator_counts={**report.operator_counts, STORE: {REFUSED: count}})


def _names(topics: Mapping[str, Topic]) -> Iterator[str]:
    return (topic.name for topic in topics.values())


def written_rows(pipeline: Pipeline[Any], rows: DataFrame) -> DataFrame:
    """The pipeline's rows as they are written: records, or rows of a table."""
    name, target = pipeline.name, pipeline.writes
    if isinstance(target, Topic):
        return to_records(rows, target, pipeline=name, side_outputs=pipeline.side_outputs)
    check_installed(target)
    return table_rows(rows, target, pipeline=name)


@contextmanager
def _mode(session: SparkSession, *, realtime: bool) -> Iterator[None]:
    """Tell operators for which mode they are being built."""
    session.conf.set(REALTIME_SETTING, str(realtime).lower())
    try:
        yield
    finally:
        session.conf.unset(REALTIME_SETTING)
