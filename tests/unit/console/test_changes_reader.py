"""What the page makes of a record of a topic that stores follow."""

from __future__ import annotations

import json

import pytest

from headrace.console.changes_reader import CHANGE_COUNT_MAX, spread, told_by
from headrace.console.travel import Change


def test_a_change_event_tells_when_it_was_committed_and_what_it_was() -> None:
    event = {"op": "u", "source": {"ts_ms": 1_794_772_701_738}, "ts_ms": 1_794_772_702_185}
    assert told_by(json.dumps(event).encode()) == (1_794_772_701_738, "update")


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b'{"op": 1, "source": 2}',
        b'{"source": {"ts_ms": true}, "op": "z"}',
        b'{"source": {"ts_ms": 1e300}}',
        b'{"source": {"ts_ms": -5}}',
        b"[" * 100_000,
    ],
)
def test_other_records_tell_nothing_and_do_no_harm(value: bytes) -> None:
    assert told_by(value) == (None, None)


def changes(topic: str, count: int) -> list[Change]:
    return [Change(topic=topic, partition=0, offset=offset, committed_ms=offset) for offset in range(count)]


def test_the_newest_of_each_topic_are_told_and_a_busy_one_leaves_room_for_the_others() -> None:
    found = spread([*changes("busy", 100), *changes("quiet", 2)])

    told = {topic: [each.offset for each in found if each.topic == topic] for topic in ("busy", "quiet")}
    assert told == {"busy": list(range(100 - CHANGE_COUNT_MAX // 2, 100)), "quiet": [0, 1]}


def test_of_very_many_topics_each_tells_one() -> None:
    topics = [str(number) for number in range(3 * CHANGE_COUNT_MAX)]
    found = spread([change for topic in topics for change in changes(topic, 5)])

    assert [(each.topic, each.offset) for each in found] == [(topic, 4) for topic in topics]
    assert spread([]) == []
