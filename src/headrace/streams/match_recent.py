"""Patterns in real-time mode: those that fit a bounded history of each key, in SQL alone.

The last rows of a key are kept by `hr.recent`, as many as the longest way to match has, in the order of the
log. With each row that comes, the words of the pattern (see patterns/words.py) are looked for from each row
of the history on; what ends with the new row is a match. So it is told at once, and needs nothing but what is
kept: which matches came before does not matter, because all of them are wanted.

The rows of a key must lie in one partition, as they do where a topic is written by that key: between
partitions the log has no order. So rows of several topics are refused, and a row that comes behind what is
known of its key from another partition is an error: what it is part of would not be found. No row is late,
and each has an event time: a row that has none, and is among the late ones elsewhere, would have no place to
go to, so the topic's schema must not allow it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

from headrace.errors import PipelineError
from headrace.streams.building import find_building
from headrace.streams.event_time import is_required
from headrace.streams.patterns.evidence import MADE_PREFIX, OUTCOME_NAMES, check_key
from headrace.streams.patterns.skipping import Emit
from headrace.streams.patterns.walk import Outcome
from headrace.streams.patterns.words import Word
from headrace.streams.recent import is_realtime, recent
from headrace.streams.time_only import source_numbers
from headrace.streams.topic import METADATA_COLUMN

_ROW: Final = f"{MADE_PREFIX}row"
_MASK: Final = f"{MADE_PREFIX}mask"
_TIME_US: Final = f"{MADE_PREFIX}time_us"
_PLACE: Final = f"{MADE_PREFIX}place"
_TITLE: Final = "hr.match"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentSearch:
    """What is searched for."""

    by: tuple[str, ...]
    time: str
    words: tuple[Word, ...]
    names: tuple[str, ...]
    """In the order of their bits."""
    mask: Column
    """Which conditions are true of a row."""
    within_us: int | None

    @property
    def longest(self) -> int:
        """How many rows a match may have."""
        return max(map(len, self.words))

    def check(self, rows: DataFrame, emit: Emit, limit: int) -> None:
        """Refuse what a history does not tell."""
        check_key(self.by)
        if METADATA_COLUMN not in rows.columns:
            refuse(
                f"the order of the log is told by the column {METADATA_COLUMN}, which is none of "
                f"{', '.join(rows.columns)}; keep it in what is searched"
            )
        building = find_building()
        refuse_several_topics(set() if building is None else building.topics_of(source_numbers(rows)))
        if not is_required(rows, self.time):
            refuse(
                f"a row without {self.time} could not be told of there; describe it in the topic's schema as "
                f"`{self.time} timestamp not null`, so that a record without it is a dead letter"
            )
        if not emit.is_all and self.longest > 1:
            refuse(
                f"with emit=hr.{emit} a match depends on those before it, of which nothing is kept; say "
                "emit=hr.all_matches"
            )
        if self.longest > limit:
            refuse(f"a match may have {self.longest} rows, and limit is {limit}; let it be as many")


def refuse_several_topics(topics: Collection[str]) -> None:
    """Refuse rows that have no common order."""
    if len(topics) > 1:
        refuse(
            f"the topics {', '.join(sorted(topics))} have no common order; search each by itself, or write "
            "them into one topic by the key first"
        )


def is_for_history(rows: DataFrame) -> bool:
    """Whether rows are searched in this way: those of streams in real-time mode."""
    return rows.isStreaming and is_realtime(rows)


def refuse(why: str) -> NoReturn:
    """Say why something can't be searched for, and what to do."""
    raise PipelineError(
        f"{_TITLE} can't run like that in real-time mode, which keeps a bounded history of each key: {why}; "
        "or run without --realtime, in micro-batches"
    )


def match_recent(rows: DataFrame, search: RecentSearch) -> DataFrame:
    """The matches, whenever the last row of one comes; in static rows, all of them."""
    own = [name for name in rows.columns if name != METADATA_COLUMN and not name.startswith(MADE_PREFIX)]
    place = F.struct(
        *(F.col(METADATA_COLUMN)[field].alias(field) for field in ("offset", "partition", "topic"))
    )
    lean = rows.select(
        *search.by,
        F.struct(*own).alias(_ROW),
        search.mask.alias(_MASK),
        _time_us(search.time).alias(_TIME_US),
        place.alias(_PLACE),
    )
    histories = recent(lean, by=search.by, order_by=_PLACE, limit=search.longest)
    newest = histories.where(is_in_order(search.by))
    found = newest.select(*search.by, F.explode(_matches(search)).alias("evidence"))
    times = F.transform("evidence", lambda each: each["row"][search.time])
    return found.select(
        *search.by,
        F.array_min(times).alias("start"),
        F.array_max(times).alias("end"),
        F.lit(OUTCOME_NAMES[Outcome.MATCHED]).alias("outcome"),
        "evidence",
    )


def is_in_order(by: Sequence[str]) -> Column:
    """Whether the new row is the last of its key; it is, unless the key's rows lie in several partitions."""
    told = f"{_TITLE}: the rows of a key lie in several partitions, which have no order: write the topic by "
    key = F.to_json(F.struct(*by))
    failure = F.raise_error(F.concat(F.lit(told + f"{', '.join(by)}; the key is "), key)).cast("boolean")
    partitions = F.transform(
        "recent", lambda each: F.struct(each[_PLACE]["topic"], each[_PLACE]["partition"])
    )
    is_apart = (F.size(F.array_distinct(partitions)) > 1) | F.col("overflow")
    is_last = F.element_at("recent", -1)["is_new"]
    return F.when(is_last, F.lit(True)).when(is_apart, failure).otherwise(F.lit(False))


def _time_us(time: str) -> Column:
    """When a row was. That each has a time is known of topics, and not of all that may be put together."""
    told = f"{_TITLE}: a row has no {time}, which real-time mode needs of each: filter such rows out"
    time_us = F.unix_micros(F.col(time).cast("timestamp"))
    return F.when(F.col(time).isNull(), F.raise_error(F.lit(told)).cast("bigint")).otherwise(time_us)


def _matches(search: RecentSearch) -> Column:
    """The evidence of each match that ends with the last row of the history."""
    history, count = F.col("recent"), F.size("recent")
    words = F.array(*(_literals(search.names.index(name) for name in word) for word in search.words))
    names = _literals(search.names)

    def fits(word: Column, start: Column) -> Column:
        def takes(place: Column) -> Column:
            entry, first = F.get(history, start + place), F.get(history, start)
            has_name = F.getbit(entry[_MASK], F.get(word, place)) == 1
            if search.within_us is None:
                return has_name
            return has_name & (entry[_TIME_US] - first[_TIME_US] <= search.within_us)

        is_there = start + F.size(word) <= count
        return is_there & F.forall(F.sequence(F.lit(0), F.size(word) - 1), takes)

    def found(start: Column) -> Column:
        return F.get(F.filter(words, lambda word: fits(word, start)), F.lit(0))

    def evidence(start: Column, word: Column) -> Column:
        return F.transform(
            word,
            lambda bit, place: F.struct(
                F.get(names, bit).alias("matched"), F.get(history, start + place)[_ROW].alias("row")
            ),
        )

    starts = F.sequence(F.lit(0), count - 1)
    tried = F.transform(starts, lambda start: F.struct(start.alias("start"), found(start).alias("word")))
    ended = F.filter(
        tried, lambda each: each["word"].isNotNull() & (each["start"] + F.size(each["word"]) == count)
    )
    return F.transform(ended, lambda each: evidence(each["start"], each["word"]))


def _literals(values: Iterable[int | str]) -> Column:
    return F.array(*(F.lit(value) for value in values))
