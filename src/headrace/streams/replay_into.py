"""Where a replay writes: a new topic, with those of side outputs beside it, or a new table."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

from headrace.config import TOPIC_NAME, StreamsConfig, check_topic_name
from headrace.errors import ConfigError
from headrace.streams.admin import Cluster, ensure_topics
from headrace.streams.log_offsets import end_offsets, first_offsets
from headrace.streams.pipeline import Pipeline
from headrace.streams.plan import DEFAULT_PARTITION_COUNT
from headrace.streams.sinks.context import WriteContext
from headrace.streams.sinks.records import same_for_all, to_records
from headrace.streams.sinks.stores import store_of
from headrace.streams.sinks.table_rows import table_rows
from headrace.streams.sinks.writers import topic_writer
from headrace.streams.spans import Span
from headrace.streams.stores import Table
from headrace.streams.topic import Topic

QUERY_LENGTH_MAX: Final = 200
"""A replay's name is that of files."""

Write = Callable[[DataFrame, int], int]


class Destination(Protocol):
    """Where a replay writes."""

    @property
    def name(self) -> str:
        """As it is told."""

    def refuse_used(self) -> None:
        """Raise unless a replay can begin here: nothing else writes it, and nothing is in it."""

    def make(self) -> None:
        """Create what must be there before the first row."""

    def prepared(self, rows: DataFrame) -> DataFrame:
        """A pipeline's rows as they are written."""

    def count(self, prepared: DataFrame) -> int:
        """How many rows a writer that writes all of them says that it has written."""

    def open(self, context: WriteContext) -> tuple[Write, Callable[[], None]]:
        """What writes prepared rows by the number of their piece, and what ends it."""


def query_of(pipeline: str, into: str) -> str:
    """What the replay is known by: its lock, its note, its transactions."""
    name = f"replay.{pipeline}.{into}"
    if TOPIC_NAME.fullmatch(name) and len(name) <= QUERY_LENGTH_MAX:
        return name
    digest = hashlib.sha256(f"{pipeline} {into}".encode()).hexdigest()[:32]
    return f"replay.{pipeline[:100]}.{digest}"


def destination(
    pipeline: Pipeline[Any], sources: Mapping[str, Topic], into: str, config: StreamsConfig
) -> Destination:
    """Of the kind that the pipeline writes: a topic's name, `schema.table`, or the directory of a table."""
    live = pipeline.writes
    if isinstance(live, Topic):
        return NewTopics(pipeline=pipeline, sources=sources, into=into, config=config)
    return NewTable(pipeline=pipeline, table=live.elsewhere(into))


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopics:
    """A new topic; the results of side outputs go to topics beside it, by its name."""

    pipeline: Pipeline[Any]
    sources: Mapping[str, Topic]
    into: str
    config: StreamsConfig

    @property
    def name(self) -> str:
        """The topic."""
        return self.into

    @property
    def live(self) -> Topic:
        """Where the live pipeline writes."""
        assert isinstance(self.pipeline.writes, Topic)
        return self.pipeline.writes

    def refuse_used(self) -> None:
        """Refuse topics that the pipeline uses, or that have records."""
        used = {topic.name for topic in self.pipeline.outputs}
        used |= {name for topic in self.sources.values() for name in topic.names}
        cluster = Cluster(self.config)
        existing = cluster.partition_counts()
        for target in self._targets():
            check_topic_name(target)
            if target in used:
                raise ConfigError(
                    f"pipeline {self.pipeline.name} itself reads or writes {target}: name a new topic"
                )
            places = [(target, number) for number in range(existing.get(target, 0))]
            if Span(starts=first_offsets(cluster, places), ends=end_offsets(cluster, places)).offset_count:
                raise ConfigError(
                    f"the topic {target} has records already: name a new one, or delete it with "
                    f"`headrace topics delete {target}`"
                )

    def make(self) -> None:
        """Create the topics, with as many partitions as the live ones have: a key stays where it is."""
        existing = Cluster(self.config).partition_counts()
        counts = {
            target: existing.get(topic.name) or topic.partitions or DEFAULT_PARTITION_COUNT
            for target, topic in self._targets().items()
        }
        ensure_topics(self.config, counts)

    def prepared(self, rows: DataFrame) -> DataFrame:
        """Records, for the new topics."""
        pipeline = self.pipeline
        records = to_records(rows, self.live, pipeline=pipeline.name, side_outputs=pipeline.side_outputs)
        if not pipeline.side_outputs:
            return records.select(
                same_for_all(F.lit(self.into), "topic", self.into), "key", "value", "headers"
            )
        is_main = F.col("topic") == self.live.name
        target = F.when(is_main, self.into).otherwise(F.concat(F.lit(f"{self.into}."), "topic"))
        return records.withColumn("topic", target)

    def count(self, prepared: DataFrame) -> int:
        """All of them."""
        return prepared.count()

    def open(self, context: WriteContext) -> tuple[Write, Callable[[], None]]:
        """A writer to the topics."""
        writer = topic_writer(Topic(name=self.into), context)
        return writer.write_records, writer.close

    def _targets(self) -> dict[str, Topic]:
        sides = {f"{self.into}.{side.name}": side for side in self.pipeline.side_outputs}
        return {self.into: self.live} | sides


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTable:
    """A new table with the key of the live one: in the same database, or in a directory of its own."""

    pipeline: Pipeline[Any]
    table: Table

    @property
    def name(self) -> str:
        """Schema and table, or the directory."""
        return self.table.name

    def refuse_used(self) -> None:
        """Refuse the live table, and one that has rows."""
        if self.table == self.pipeline.writes:
            raise ConfigError(
                f"pipeline {self.pipeline.name} itself writes the table {self.name}: name a new one"
            )
        if store_of(self.table).has_rows(self.table):
            raise ConfigError(f"the table {self.name} has rows already: name a new one, or drop it")

    def make(self) -> None:
        """The writer creates the table, from the rows' columns."""

    def prepared(self, rows: DataFrame) -> DataFrame:
        """Those columns that the table gets."""
        return table_rows(rows, self.table, pipeline=self.pipeline.name)

    def count(self, prepared: DataFrame) -> int:
        """As the kind of the table counts."""
        return store_of(self.table).written_count(self.table, prepared)

    def open(self, context: WriteContext) -> tuple[Write, Callable[[], None]]:
        """A writer to the table."""
        writer = store_of(self.table).writer(self.table, context)
        return (lambda rows, piece: writer.write(rows, piece) or 0), writer.close
