"""How far a topic was handed over."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import BridgeFailed
from headrace.queue_clients.bridge.position import Position
from headrace.queue_clients.bridge.records import TopicRecord

OFFSETS = st.dictionaries(st.integers(0, 20), st.integers(0, 2**62))


def _record(partition: int, offset: int) -> TopicRecord:
    return TopicRecord(topic="t", key=None, value=b"", partition=partition, offset=offset)


@given(OFFSETS)
def test_a_position_reads_back_what_it_writes(offsets: dict[int, int]) -> None:
    position = Position(topic="t", offsets=offsets)
    assert Position.from_json(position.to_json(), topic="t", queue="q") == position


def test_the_position_is_behind_the_records_of_each_partition() -> None:
    before = Position(topic="t", offsets={0: 5, 1: 9})
    assert before.after([_record(0, 5), _record(0, 8), _record(2, 0)]).offsets == {0: 9, 1: 9, 2: 1}


@given(OFFSETS, OFFSETS)
def test_of_two_positions_the_further_counts_whichever_comes_first(
    one: dict[int, int], other: dict[int, int]
) -> None:
    first, second = Position(topic="t", offsets=one), Position(topic="t", offsets=other)
    further = first.further(second)
    assert further == second.further(first)
    assert all(further.offsets[each] == max(one.get(each, 0), other.get(each, 0)) for each in {*one, *other})


def test_the_position_of_another_topic_is_refused() -> None:
    with pytest.raises(BridgeFailed, match="a name of its own"):
        Position.from_json(Position(topic="other").to_json(), topic="t", queue="q")


@pytest.mark.parametrize("text", [b"", b"{}", b"[]", b'{"topic": "t", "offsets": [1]}', b"\xff"])
def test_what_is_no_position_is_refused(text: bytes) -> None:
    with pytest.raises(BridgeFailed, match="no position"):
        Position.from_json(text, topic="t", queue="q")
