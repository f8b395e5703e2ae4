"""Counting: buckets that double, and error codes wherever an answer has them."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from headrace.kafka.answer import Silence
from headrace.kafka.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from headrace.kafka.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from headrace.kafka.metrics.counters import Counters, RequestCounters, Times
from headrace.kafka.metrics.errors import error_counter


@given(st.lists(st.integers(0, 2**40), max_size=50))
def test_a_time_is_counted_in_every_bucket_whose_bound_it_stays_below(took_ns: list[int]) -> None:
    times = Times()
    for each in took_ns:
        times.add(each)
    assert times.total_s == pytest.approx(sum(took_ns) / 1e9)
    for bound_s, count in times.cumulative()[:-1]:
        assert count == sum(each < round(bound_s * 1e9) for each in took_ns)
    assert times.cumulative()[-1] == (math.inf, len(took_ns))


def test_there_is_a_bucket_for_whatever_takes_long() -> None:
    times = Times()
    times.add(2**63 - 1)
    assert times.cumulative()[-1][1] == 1


def counted(message: Any) -> dict[ErrorCode, int]:
    counts: dict[ErrorCode, int] = {}
    message_class: type = type(message)
    error_counter(message_class)(message, counts)
    return counts


def found_by_looking_everywhere(value: Any) -> list[ErrorCode]:
    if isinstance(value, ErrorCode):
        return [] if value is ErrorCode.none else [value]
    if isinstance(value, tuple):
        return [code for each in value for code in found_by_looking_everywhere(each)]
    if is_dataclass(value):
        values = (getattr(value, field.name) for field in fields(value))
        return [code for each in values for code in found_by_looking_everywhere(each)]
    return []


@pytest.mark.parametrize("seed", range(20))
def test_error_codes_are_found_wherever_they_are(seed: int) -> None:
    seeded = random.Random(seed)

    def code() -> ErrorCode:
        return seeded.choice([ErrorCode.none, ErrorCode.not_leader_or_follower, ErrorCode.corrupt_message])

    produced = ProduceResponse(
        responses=tuple(
            TopicProduceResponse(
                name="t",
                partition_responses=tuple(
                    PartitionProduceResponse(index=number, error_code=code(), base_offset=0)
                    for number in range(seeded.randrange(4))
                ),
            )
            for _ in range(seeded.randrange(4))
        )
    )
    fetched = FetchResponse(
        error_code=code(),
        responses=tuple(
            FetchableTopicResponse(
                topic="t",
                partitions=(
                    PartitionData(partition_index=0, error_code=code(), high_watermark=0, records=b""),
                ),
            )
            for _ in range(seeded.randrange(4))
        ),
    )
    for message in (produced, fetched):
        found = found_by_looking_everywhere(message)
        assert counted(message) == {each: found.count(each) for each in found}


@dataclass
class _Inner:
    error_code: ErrorCode | None


@dataclass
class _Outer:
    one: _Inner | None
    many: tuple[_Inner, ...] | None
    text: str = ""


@dataclass
class _NoErrors:
    text: str = ""
    numbers: tuple[int, ...] = ()


def test_parts_that_are_missing_hold_no_errors() -> None:
    assert counted(_Outer(one=None, many=None)) == {}
    assert counted(_Outer(one=_Inner(None), many=(_Inner(ErrorCode.none),))) == {}
    unknown = ErrorCode.unknown_topic_id
    assert counted(_Outer(one=_Inner(unknown), many=(_Inner(unknown),))) == {unknown: 2}


def test_a_message_without_error_codes_has_no_errors() -> None:
    counters = RequestCounters()
    counters.answered(_NoErrors(), 100)
    assert counters.errors == {}


def test_a_request_that_wants_no_answer_is_counted_like_others() -> None:
    counters = RequestCounters()
    for response in (Silence.KEEP_OPEN, ProduceResponse(responses=()), Silence.KEEP_OPEN):
        counters.answered(response, 100)
    assert sum(counters.times.buckets) == 3
    assert counters.errors == {}


def test_each_api_has_counters_of_its_own() -> None:
    counters = Counters()
    assert counters.of_api(3) is counters.of_api(3)
    assert counters.of_api(3) is not counters.of_api(1)
