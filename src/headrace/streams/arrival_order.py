"""Compute a batch in the order in which a stream was given its rows, as far as its checkpoint tells.

What an event finds in a table depends on which of the table's changes had come when it was joined. Spark's
log of offsets tells which micro-batch each record was in, so that the join can be done again as it was then.
Spark removes old batches from it: what was before the first that is known is taken as one micro-batch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

from headrace.streams.buckets.logic import SourceProgress
from headrace.streams.joins.by_arrival import BATCH, ByArrival
from headrace.streams.joins.lookup import Lookup
from headrace.streams.joins.sides import RIGHT, TIME, source_name
from headrace.streams.progress_log import Batch, Offsets, ProgressLog
from headrace.streams.topic import METADATA_COLUMN


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivalOrder:
    """The micro-batches of a query."""

    ends: tuple[Mapping[str, int], ...]
    """By source: up to where each reads. The first is where those that are known begin."""
    table_ends: Mapping[str, int]
    """What had to be read of tables before the first event was joined."""
    is_whole: bool
    """Whether all micro-batches are known."""

    @classmethod
    def of(cls, log: ProgressLog, batches: Sequence[Batch], table_ends: Mapping[str, int]) -> ArrivalOrder:
        """Those that a checkpoint tells of."""
        first = log.start_of(batches[0]) if batches else None
        begins = log.starts if first is None else first
        ends = [_by_source(begins), *(_by_source(batch.ends) for batch in batches)]
        is_whole = bool(batches) and batches[0].number == 0
        return cls(ends=tuple(ends), table_ends=table_ends, is_whole=is_whole)

    def batch_of(self, topic: Column) -> Column:
        """The number of the micro-batch that a row was in, from 1 on; 0 if it is not known."""
        ends = defaultdict(list)
        for each in self.ends:
            for source in {name for told in self.ends for name in told}:
                # A partition that was not there yet had nothing to read.
                ends[source].append(each.get(source, 0))
        place = F.col(METADATA_COLUMN)
        if not ends:
            return F.lit(0)
        known = F.create_map(
            *(
                column
                for source, offsets in sorted(ends.items())
                for column in (
                    F.lit(source),
                    F.array(*(F.lit(offset) for offset in offsets)).cast("array<bigint>"),
                )
            )
        )
        own = F.try_element_at(known, F.concat(topic, F.lit("-"), place["partition"].cast("string")))
        count = F.size(F.filter(own, lambda end: end <= place["offset"]))
        return F.when(own.isNull(), 0).otherwise(count)

    def by_arrival(self, logic: Lookup, rows: DataFrame) -> ByArrival:
        """The logic, stepped through the micro-batches of these rows, which tell theirs."""
        place = F.col(METADATA_COLUMN)
        counted = (
            rows.groupBy(BATCH, place["topic"].alias("topic"), place["partition"].alias("partition"))
            .agg(
                F.count("*").alias("row_count"),
                F.max(F.unix_micros(F.col(TIME).cast("timestamp"))).alias("event_us"),
                F.max(F.unix_micros(place["timestamp"])).alias("record_us"),
            )
            .collect()
        )
        progress: dict[int, list[SourceProgress]] = defaultdict(list)
        for row in sorted(counted, key=lambda row: (row["topic"], row["partition"])):
            progress[row[BATCH]].append(
                SourceProgress(
                    source=f"{row['topic']}-{row['partition']}",
                    row_count=row["row_count"],
                    event_time_us_max=row["event_us"],
                    record_time_us_max=row["record_us"],
                )
            )
        tables = {row["topic"] for row in counted}
        ends = {
            source: end
            for source, end in self.table_ends.items()
            if source_name(RIGHT, source.rpartition("-")[0]) in tables
        }
        return ByArrival(
            logic=replace(logic, table_ends=ends),
            progress={number: tuple(told) for number, told in progress.items()},
            ends=dict(enumerate(self.ends)),
        )


def _by_source(sources: Sequence[Offsets]) -> dict[str, int]:
    return {f"{topic}-{partition}": end for source in sources for (topic, partition), end in source.items()}


_current: Final[ContextVar[ArrivalOrder | None]] = ContextVar("arrival_order", default=None)
_noted: Final[ContextVar[list[bool] | None]] = ContextVar("noted_lookups", default=None)


@contextmanager
def in_arrival_order(order: ArrivalOrder) -> Iterator[None]:
    """Build batches in which joins with tables are done in this order."""
    token = _current.set(order)
    try:
        yield
    finally:
        _current.reset(token)


def current_arrival_order() -> ArrivalOrder | None:
    """The order in which joins with tables are to be done; None for all changes first."""
    return _current.get()


@contextmanager
def noted_lookups() -> Iterator[list[bool]]:
    """Of each join with a table that is built meanwhile, whether its rows tell where they came from."""
    noted: list[bool] = []
    token = _noted.set(noted)
    try:
        yield noted
    finally:
        _noted.reset(token)


def note_lookup(*, has_places: bool) -> None:
    """Note a join with a table."""
    noted = _noted.get()
    if noted is not None:
        noted.append(has_places)
