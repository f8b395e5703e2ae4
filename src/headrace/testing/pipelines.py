"""Test pipelines step by step, on Spark and a broker in this process.

    def test_large_orders_are_found(headrace_pipeline):
        script = headrace_pipeline(large)
        script.add(orders, {"id": "a", "amount": 5.0}, {"id": "b", "amount": 5000.0})
        script.expect({"id": "b", "amount": 5000.0})

Nothing runs between the steps. `process`, which `expect` calls, starts the pipeline from its checkpoint, lets
it process all that has been added since, in one micro-batch, and stops it: so a step gives the same rows each
time, and each is a restart. `crash` lets it fail at a named place of its commit protocol; what it leaves in
the broker and in its checkpoint is what a crash at that place leaves, and the next step goes on from there.

The session is started once in a test run and shared; the broker, the topics and the checkpoint are new for
each test.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows
from pyspark.sql.types import ArrayType, BooleanType, DataType, MapType, NumericType, StructType

from headrace.config import Guarantee, StreamsConfig
from headrace.errors import PipelineError, PipelineFailed, UsageError
from headrace.failpoints import Failpoint, arm, disarm
from headrace.streams.admin import ensure_topics
from headrace.streams.decode import parse_schema
from headrace.streams.pipeline import Pipeline
from headrace.streams.plan import Plan, make_plan
from headrace.streams.queries import Queries
from headrace.streams.session import start_session, stop_session
from headrace.streams.static import is_deletion
from headrace.streams.time_only import TIME_COLUMN, time_only
from headrace.streams.topic import METADATA_COLUMN, Topic
from headrace.testing.rows import as_mapping, difference, encode, plain

if TYPE_CHECKING:
    from typing import Self

    from pyspark.sql import Column, DataFrame, SparkSession

SLOTS: Final = 32
"""Enough for real-time mode, too; an idle slot costs nothing."""
STEP_S_MAX: Final = 120.0
"""How long a step may take, on a slow and busy machine."""
ADVANCE_HEADER: Final = "headrace.advance"
BY_KEY: Final = -1
"""The partition that a record gets by its key, as the library writes it."""
_LONG_AGO: Final = datetime(1, 1, 2, tzinfo=UTC)


@contextmanager
def spark_session(directory: Path) -> Iterator[SparkSession]:
    """A session for tests, stopped afterwards. `directory` takes what it needs while it runs."""
    session = start_session(StreamsConfig(data_dir=directory), slots=SLOTS, work_dir=directory)
    try:
        yield session
    finally:
        stop_session(session)


class PipelineScript:
    """One pipeline, on topics and a checkpoint of its own, step by step. For one thread only."""

    def __init__(
        self,
        pipeline: Pipeline[Any],
        *,
        session: SparkSession,
        bootstrap: str,
        directory: Path,
        guarantee: Guarantee = "exactly-once",
    ) -> None:
        self._pipeline = _deaf_to_advances(pipeline)
        self._session = session
        self._config = StreamsConfig(bootstrap=bootstrap, data_dir=directory, guarantee=guarantee)
        self._clients: dict[str, str | int | bool] = {"bootstrap.servers": bootstrap, "log_level": 0}
        self._producer = Producer({**self._clients, "linger.ms": 0, "partitioner": "murmur2_random"})
        plan = make_plan([self._pipeline])
        self._partition_counts = ensure_topics(self._config, plan.topics())
        self._positions: dict[tuple[str, int], int] = {}
        # What is read from its end on must be told where that is before anything is added.
        self._has_work = any(topic.start != "earliest" for topic in plan.sources[pipeline.name].values())
        self.process()

    def add(self, topic: Topic, *rows: object) -> Self:
        """Write rows to a topic: mappings or dataclass instances, as JSON; text and bytes as they are.

        A row whose topic has a key gets it, and the partition that goes with it; all others are in the first
        partition, in their order. To a topic of changes, a row whose `_delete` is true is a tombstone.
        """
        for row in rows:
            key = None if isinstance(row, str | bytes) else _key(topic, as_mapping(row))
            value = None if is_deletion(topic, row) else encode(row)
            self._produce(topic.name, value, key, 0 if key is None else BY_KEY)
        return self._flushed()

    def advance(self, topic: Topic, to: datetime) -> Self:
        """Let the event time of all partitions of a topic come this far, with no row that the pipeline sees.

        The topic must have an event time and a watermark, which is then `to` less its delay; where sources
        declare how far they are, it is `to`.
        """
        if topic.event_time is None or topic.watermark is None:
            raise UsageError(
                f"topic {topic.name} has no event time to advance: describe it with event_time and watermark"
            )
        schema = parse_schema(topic)
        row = {field.name: _filler(field.dataType) for field in schema.fields if not field.nullable}
        value = encode({**row, topic.event_time: to})
        for name in topic.names:
            for partition in range(self._partition_counts.get(name, 1)):
                self._produce(name, value, None, partition, headers={ADVANCE_HEADER: to.isoformat()})
        return self._flushed()

    def process(self) -> Self:
        """Let the pipeline process all that was added since the last step."""
        if self._has_work:
            self._run(make_plan([self._pipeline]), ())
            self._has_work = False
        return self

    def expect(self, *rows: object, topic: Topic | None = None) -> Self:
        """Process what was added; these rows, in any order, must be what was written since the last look.

        `topic` is one of the side outputs; without it, what the pipeline writes. A tombstone is a row of the
        key's columns and `_delete`, which is true; a key of one column is a text.
        """
        __tracebackhide__ = True
        self.process()
        target = topic or self._pipeline.writes
        if not isinstance(target, Topic):
            raise UsageError(f"{target!r} is no topic: look into it by its own means, after process()")
        found = [_decoded(target, message) for message in self._read(target.name)]
        told = difference(rows, found, of=f"topic {target.name}")
        if told is not None:
            raise AssertionError(told)
        return self

    def expect_dead_letters(self, topic: Topic, *letters: object) -> Self:
        """The records of the topic, since the last look, that could not be decoded: `value` and `cause`.

        `{"value": "not json", "cause": "the value is not one JSON text"}` is one of them.
        """
        __tracebackhide__ = True
        self._run(Plan(pipelines=(), sources={}), [topic])
        found = [_dead_letter(message) for message in self._read(topic.dead_letters)]
        told = difference(letters, found, of=f"topic {topic.dead_letters}")
        if told is not None:
            raise AssertionError(told)
        return self

    def crash(self, at: str, *, after: int = 0) -> Self:
        """Process what was added, and crash at a failpoint, after so many times of passing it well.

        It must come there; `headrace.testing.failpoints.FAILPOINTS` lists the places, `pipeline.` being those
        of pipelines. The next step goes on from what the crash has left.
        """
        if not at.startswith("pipeline."):
            raise UsageError(f"a pipeline does not come by {at}: its places begin with `pipeline.`")
        failpoint = Failpoint(at, "error", hits_left=after + 1)
        arm([failpoint])
        try:
            self._run(make_plan([self._pipeline]), ())
        except PipelineFailed:
            if failpoint.hits_left > 0:
                raise
        else:
            raise UsageError(f"the pipeline did not come by {at} {after + 1} times: add rows for it first")
        finally:
            disarm(at)
        self._has_work = True
        return self

    def restart(self, pipeline: Pipeline[Any] | None = None) -> Self:
        """Go on from the checkpoint, with other code if that is given, even if there is nothing new."""
        if pipeline is not None:
            self._pipeline = replace(_deaf_to_advances(pipeline), name=self._pipeline.name)
        self._has_work = True
        return self.process()

    def _run(self, plan: Plan, dead_letters_of: tuple[Topic, ...] | list[Topic]) -> None:
        queries = Queries(session=self._session, config=self._config, realtime=False, until_now=True)
        try:
            queries.start(plan, dead_letters_of)
            queries.await_done(STEP_S_MAX)
        finally:
            # Not `release`: a crash does not tidy up after itself, either.
            for query in queries.running.values():
                query.stop()

    def _produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int,
        *,
        headers: dict[str, str | bytes | None] | None = None,
    ) -> None:
        if topic not in self._partition_counts:
            raise PipelineError(
                f"pipeline {self._pipeline.name} does not read {topic}: it has "
                f"{', '.join(self._partition_counts)}"
            )
        self._producer.produce(topic, value, key, partition, headers=headers)
        self._has_work = True

    def _flushed(self) -> Self:
        if self._producer.flush(STEP_S_MAX):
            raise PipelineFailed(f"the broker at {self._config.bootstrap} did not take all rows")
        return self

    def _read(self, topic: str) -> list[Any]:
        """The committed records of a topic since the last look, by partition."""
        count = self._partition_counts.get(topic) or ensure_topics(self._config, {topic: 1})[topic]
        consumer = Consumer(
            {
                **self._clients,
                "group.id": "headrace.testing",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
            }
        )
        try:
            consumer.assign(
                [TopicPartition(topic, each, self._positions.get((topic, each), 0)) for each in range(count)]
            )
            return self._read_to_the_end(consumer, topic, count)
        finally:
            consumer.close()

    def _read_to_the_end(self, consumer: Consumer, topic: str, partition_count: int) -> list[Any]:
        messages: list[Any] = []
        ended = 0
        while ended < partition_count:
            message = consumer.poll(STEP_S_MAX)
            if message is None:
                raise PipelineFailed(f"topic {topic} could not be read within {STEP_S_MAX:.0f} s")
            error = message.error()
            if error is None:
                messages.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - the library's name
                partition, offset = message.partition(), message.offset()
                assert partition is not None, "the end is that of a partition"
                assert offset is not None, "the end has an offset"
                self._positions[topic, partition] = offset
                ended += 1
            else:
                raise PipelineFailed(f"topic {topic} could not be read: {error.str()}")
        return messages


ScriptOf = Callable[..., PipelineScript]


def _deaf_to_advances(pipeline: Pipeline[Any]) -> Pipeline[Any]:
    """The same pipeline, which does not see the rows that only move event time on."""
    timed = {
        name: topic.event_time
        for name, topic in pipeline.sources().items()
        if topic.event_time is not None and topic.watermark is not None
    }
    if not timed:
        return pipeline

    @functools.wraps(pipeline.function)
    def function(*args: DataFrame, **kwargs: DataFrame) -> DataFrame:
        given = dict(zip(pipeline.sources(), args, strict=False)) | kwargs
        frames = {
            name: frame.where(_is_row(timed[name])) if name in timed else frame
            for name, frame in given.items()
        }
        with time_only([_advances(given[name], event_time) for name, event_time in timed.items()]):
            return pipeline.function(**frames)

    return replace(pipeline, function=function)


def _is_row(event_time: str) -> Column:
    """Whether it is more than an advance.

    The event time must stand in the condition, or Spark would drop the row before the watermark has seen it.
    """
    return ~_is_advance() | (F.col(event_time) < F.lit(_LONG_AGO))


def _advances(frame: DataFrame, event_time: str) -> DataFrame:
    """The advances of a topic, for operators that have a watermark of their own."""
    # In one comparison, so that Spark's own watermark sees all rows here, too: see above.
    time = F.coalesce(F.when(_is_advance(), F.col(event_time)), F.lit(_LONG_AGO))
    return frame.where(time > F.lit(_LONG_AGO)).select(F.col(event_time).alias(TIME_COLUMN), METADATA_COLUMN)


def _is_advance() -> Column:
    is_advance = F.exists(F.col(METADATA_COLUMN)["headers"], lambda header: header["key"] == ADVANCE_HEADER)
    return F.coalesce(is_advance, F.lit(False))


def _key(topic: Topic, row: dict[str, Any]) -> bytes | None:
    told = {name: row[name] for name in topic.key if row.get(name) is not None}
    if not told:
        return None
    if len(topic.key) > 1:
        return encode(told)
    (value,) = told.values()
    return value if isinstance(value, bytes) else str(plain(value)).encode()


def _filler(kind: DataType) -> Any:
    """Any value of a required column, as JSON has it."""
    if isinstance(kind, NumericType):
        return 0
    if isinstance(kind, BooleanType):
        return False
    if isinstance(kind, ArrayType):
        return []
    if isinstance(kind, MapType):
        return {}
    if isinstance(kind, StructType):
        return {field.name: _filler(field.dataType) for field in kind.fields}
    return "1970-01-01T00:00:00Z" if kind.typeName().startswith("timestamp") else "1970-01-01"


def _decoded(topic: Topic, message: Any) -> dict[str, Any]:
    if message.value() is None:
        key = message.key()
        if len(topic.key) > 1:
            return {**json.loads(key), "_delete": True}
        name = topic.key[0] if topic.key else "_key"
        return {name: None if key is None else key.decode(errors="replace"), "_delete": True}
    try:
        value = json.loads(message.value())
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {"value": message.value()}


def _dead_letter(message: Any) -> dict[str, Any]:
    headers = dict(message.headers() or [])
    value = message.value()
    return {
        "value": None if value is None else value.decode(errors="replace"),
        "cause": headers["headrace.cause"].decode(),
    }
