"""Where the feed starts to read, and when it starts anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.config import ConsoleConfig
from headrace.console.feed import NO_TOPIC, Assignment, KafkaFeed, Start, starts
from headrace.console.meter import Meter, Offsets, TopicEnds
from headrace.console.observations import Observation, TopicsMeasured

if TYPE_CHECKING:
    from headrace.testing.clock import ManualClock


def test_reading_starts_so_many_records_before_the_end() -> None:
    assert starts({0: 1_000}, {0: 0}, 200) == [Start(partition=0, first=800, live_from=1_000)]


def test_reading_starts_at_the_beginning_of_a_short_or_trimmed_partition() -> None:
    assert starts({0: 50, 1: 1_000}, {0: 0, 1: 950}, 200) == [
        Start(partition=0, first=0, live_from=50),
        Start(partition=1, first=950, live_from=1_000),
    ]


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(1, 500))
def test_a_start_is_always_an_offset_that_the_partition_has_or_its_end(
    first: int, size: int, count: int
) -> None:
    (start,) = starts({0: first + size}, {0: first}, count)
    assert first <= start.first <= start.live_from
    assert start.live_from - start.first <= count


def topic(topic_id: str, **ends: int) -> TopicEnds:
    return TopicEnds(topic_id=topic_id, ends={int(name[1:]): end for name, end in ends.items()})


def test_a_topic_that_grows_or_gains_partitions_is_the_same_topic() -> None:
    assert not topic("x", p0=9, p1=0).is_other_than(topic("x", p0=5))


def test_a_topic_that_shrinks_vanishes_or_has_another_id_is_another_one() -> None:
    assert topic("x", p0=4).is_other_than(topic("x", p0=5))
    assert topic("x").is_other_than(topic("x", p0=0))
    assert topic("y", p0=9).is_other_than(topic("x", p0=5))


class ScriptedMeter(Meter):
    """Answers with what the test says."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicEnds] = {}

    def ends(self, topics: tuple[str, ...]) -> dict[str, TopicEnds]:
        return {name: ends for name, ends in self.topics.items() if name in topics}

    def firsts(self, topic: str, partitions: list[int]) -> Offsets:  # noqa: ARG002  # the Meter's signature
        return dict.fromkeys(partitions, 0)


@pytest.fixture
def observed() -> list[Observation]:
    return []


@pytest.fixture
def feed(clock: ManualClock, observed: list[Observation]) -> KafkaFeed:
    feed = KafkaFeed(ConsoleConfig(), clock)
    feed._post = observed.append
    return feed


def planned_by(feed: KafkaFeed) -> list[Assignment]:
    found = []
    while not feed._assignments.empty():
        found.append(feed._assignments.get())
    return found


def test_partitions_are_planned_once_and_new_ones_when_they_appear(
    feed: KafkaFeed, observed: list[Observation]
) -> None:
    meter = ScriptedMeter()
    now = feed._measure_once(meter, NO_TOPIC)
    assert (planned_by(feed), observed) == ([], [TopicsMeasured(input_end=None, alerts_end=None)])

    meter.topics["fraud-alerts"] = topic("x", p0=3)
    now = feed._measure_once(meter, now)
    now = feed._measure_once(meter, now)
    first = Start(partition=0, first=0, live_from=3)
    assert planned_by(feed) == [Assignment(starts=[first], anew=False)]

    meter.topics["fraud-alerts"] = topic("x", p0=4, p1=2)
    feed._measure_once(meter, now)
    added = Start(partition=1, first=0, live_from=2)
    assert planned_by(feed) == [Assignment(starts=[added], anew=False)]
    assert observed[-1] == TopicsMeasured(input_end=None, alerts_end=6)


def test_a_topic_made_anew_is_planned_afresh(feed: KafkaFeed) -> None:
    meter = ScriptedMeter()
    meter.topics["fraud-alerts"] = topic("x", p0=3)
    now = feed._measure_once(meter, NO_TOPIC)
    meter.topics["fraud-alerts"] = topic("y", p0=7)
    feed._measure_once(meter, now)
    assert planned_by(feed)[-1] == Assignment(starts=[Start(partition=0, first=0, live_from=7)], anew=True)


def test_a_topic_that_vanishes_is_no_longer_read(feed: KafkaFeed) -> None:
    meter = ScriptedMeter()
    meter.topics["fraud-alerts"] = topic("x", p0=3)
    now = feed._measure_once(meter, NO_TOPIC)
    meter.topics.clear()
    feed._measure_once(meter, now)
    assert planned_by(feed)[-1] == Assignment(starts=[], anew=True)


def test_a_lost_position_is_planned_afresh_once(feed: KafkaFeed) -> None:
    meter = ScriptedMeter()
    meter.topics["fraud-alerts"] = topic("x", p0=3)
    now = feed._measure_once(meter, NO_TOPIC)
    feed._position_lost.set()
    now = feed._measure_once(meter, now)
    feed._measure_once(meter, now)
    assert [assignment.anew for assignment in planned_by(feed)] == [False, True]
