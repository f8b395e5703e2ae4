"""When input events happened and where."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from headrace.console.samples import (
    PLACE_COUNT_MAX,
    SAMPLE_COUNT_MAX,
    WINDOW_S,
    InputRecord,
    Sample,
    SampleWindow,
    sample_of,
)
from headrace.console.view import View

VIEW = View(title="x", input="i", alerts="a", event_time="at", latitude="lat", longitude="lon")


def sampled(value: object, timestamp_ms: int | None = 10_000, view: View = VIEW) -> Sample | None:
    data = value if isinstance(value, bytes) or value is None else json.dumps(value).encode()
    return sample_of(InputRecord(value=data, timestamp_ms=timestamp_ms), view)


def test_a_sample_says_when_it_happened_when_it_came_and_where() -> None:
    sample = sampled({"at": "1970-01-01T00:00:04Z", "lat": 52.52, "lon": 13.41})
    assert sample == Sample(event_ms=4_000, record_ms=10_000, place=(52.52, 13.41))
    assert sample is not None
    assert sample.delay_ms == 6_000


@pytest.mark.parametrize("at", [4_000, 4_000.7, "1970-01-01T00:00:04", "1970-01-01T01:00:04+01:00"])
def test_event_time_is_epoch_milliseconds_or_iso_text(at: object) -> None:
    sample = sampled({"at": at})
    assert sample is not None
    assert sample.event_ms == 4_000


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"\xff",
        b"7",
        b"[]",
        b"{",
        b"[" * 100_000,
        {},
        {"at": None},
        {"at": True},
        {"at": "soon"},
        {"at": []},
        {"at": 1e300},
        b'{"at": NaN}',
        b'{"at": 1' + b"0" * 300 + b"}",
        {"at": 10**400},
        {"at": -(10**400)},
        b'{"at": 4000, "filling": "' + b"x" * 300_000 + b'"}',
    ],
)
def test_what_does_not_say_when_it_happened_is_no_sample(value: object) -> None:
    assert sampled(value) is None


def test_without_a_record_time_or_a_field_to_look_at_there_is_no_sample() -> None:
    assert sampled({"at": 1}, None) is None
    assert sampled({"at": 1}, view=View(title="x", input="i", alerts="a")) is None


@pytest.mark.parametrize(
    "place",
    [
        {},
        {"lat": 1},
        {"lat": 91, "lon": 0},
        {"lat": 0, "lon": -181},
        {"lat": "1", "lon": 1},
        {"lat": True, "lon": 1},
    ],
)
def test_a_place_that_is_not_on_this_planet_is_none(place: dict[str, Any]) -> None:
    sample = sampled({"at": 1, **place})
    assert sample is not None
    assert sample.place is None


def test_the_window_forgets_what_is_old_and_is_bounded() -> None:
    window = SampleWindow()
    window.add(0.0, [Sample(event_ms=1, record_ms=2, place=None), None])
    assert window.summary(WINDOW_S)["count"] == 1
    assert window.summary(WINDOW_S + 0.1)["count"] == 0
    window.add(WINDOW_S + 1, [Sample(event_ms=1, record_ms=2, place=(1.0, 2.0))] * (SAMPLE_COUNT_MAX + 5))
    summary = window.summary(WINDOW_S + 1)
    assert (summary["count"], len(summary["places"])) == (SAMPLE_COUNT_MAX, PLACE_COUNT_MAX)
    assert summary["unreadable_count"] == 1


def test_delays_are_summed_up_as_a_naive_reference_does() -> None:
    rng = random.Random(7)
    delays = [rng.randrange(-500, 60_000) for _ in range(200)]
    window = SampleWindow()
    window.add(0.0, [Sample(event_ms=100_000 - delay, record_ms=100_000, place=None) for delay in delays])
    summary = window.summary(1.0)
    assert summary["delay_p50_ms"] == sorted(delays)[99]
    assert summary["delay_p99_ms"] == sorted(delays)[197]
    assert summary["delay_max_ms"] == max(delays)
    assert [event for _, event in summary["points"]] == [100_000 - delay for delay in delays]


def test_an_empty_window_knows_no_delay() -> None:
    assert SampleWindow().summary(0.0)["delay_p50_ms"] is None
