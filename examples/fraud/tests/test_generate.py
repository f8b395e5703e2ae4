"""The program that sends the world."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

import headrace
from card_world import Arrivals, Limits, World
from generate import Control, Unreadable, read_control, read_limits

WITHIN_S = 120.0
GENERATE = Path(__file__).parents[1] / "generate.py"


@contextmanager
def generate(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The program, until the block ends."""
    command = [sys.executable, str(GENERATE), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def values(bootstrap: str, topic: str, until: Callable[[list[bytes]], bool]) -> list[bytes]:
    """Read the topic from its beginning until there is enough."""
    settings = {"auto.offset.reset": "earliest", "enable.auto.commit": False, "log_level": 0}
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "test", **settings})
    consumer.subscribe([topic])
    found: list[bytes] = []
    try:
        deadline_s = time.monotonic() + WITHIN_S
        while not until(found):
            assert time.monotonic() < deadline_s, f"only {len(found)} records came"
            found += [message.value() or b"" for message in consumer.consume(1_000, timeout=0.1)]
    finally:
        consumer.close()
    return found


def test_the_program_sends_what_the_seed_says(headrace_broker: headrace.Broker) -> None:
    options = ["--count", "600", "--seed", "1", "--rate", "20", "--start", "2026-01-01T12:00:00Z", "--fast"]
    with generate("--bootstrap", headrace_broker.bootstrap, *options) as process:
        output, errors = process.communicate(timeout=WITHIN_S)

    assert (process.returncode, errors) == (0, "")
    assert output.splitlines()[-1] == "produced 600 records"
    start = datetime(2026, 1, 1, 12, tzinfo=UTC)
    sent = list(islice(Arrivals(World(seed=1, start=start, rate=20)), 600))
    wanted = [one.value for one in sent]
    found = values(headrace_broker.bootstrap, "transactions", lambda some: len(some) >= len(wanted))
    assert sorted(found) == sorted(wanted)
    profiles = [profile.encode() for one in sent for profile in one.profiles]
    found = values(headrace_broker.bootstrap, "card-profiles", lambda some: len(some) >= len(profiles))
    assert sorted(found) == sorted(profiles)
    frauds = {one.transaction.tx_id for one in sent if one.is_fraud and one.transaction is not None}
    assert frauds
    labels = values(headrace_broker.bootstrap, "fraud-labels", lambda some: len(some) >= len(frauds))
    assert {json.loads(label)["tx_id"] for label in labels} == frauds


def test_the_program_follows_changes_and_stops_on_sigterm_with_everything_delivered(
    headrace_broker: headrace.Broker,
) -> None:
    bootstrap = headrace_broker.bootstrap
    with generate("--bootstrap", bootstrap, "--rate", "1", "--late", "0") as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("producing 1 transactions a second")
        producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
        for topic, key, value in (
            ("fraud-control", "world", b"what?"),
            ("fraud-control", "world", b'{"rate": 1000}'),
            ("fraud-rules", "rules", b'{"count_max": 3}'),
        ):
            producer.produce(topic, value, key)
        assert producer.flush(WITHIN_S) == 0
        # At one a second this would take a quarter of an hour.
        values(bootstrap, "transactions", lambda found: len(found) > 1_000)
        values(
            bootstrap,
            "card-profiles",
            lambda found: any(json.loads(profile)["count_max"] == 3 for profile in found),
        )
        process.send_signal(signal.SIGTERM)
        output, errors = process.communicate(timeout=WITHIN_S)

    assert process.returncode == 0
    assert errors == (
        "skipped a message of fraud-control: it is not JSON: Expecting value: line 1 column 1 (char 0)\n"
    )
    sent_count = int(output.split()[1])
    assert len(values(bootstrap, "transactions", lambda found: len(found) >= sent_count)) == sent_count


def test_without_a_broker_the_program_says_so_in_a_sentence() -> None:
    with generate("--bootstrap", "127.0.0.1:1") as process:
        _output, errors = process.communicate(timeout=WITHIN_S)

    assert process.returncode == 1
    assert errors.startswith("error: no broker answers at 127.0.0.1:1")
    assert errors.count("\n") == 1


def test_what_a_message_leaves_out_stays_as_it_is() -> None:
    assert read_control(b'{"rate": 50}') == Control(rate=50.0)
    assert read_control(b'{"late_share": 0, "more": 1}') == Control(late_share=0.0)
    assert read_limits(b'{"kmh_max": 900}', Limits(count_max=3)) == Limits(count_max=3, kmh_max=900.0)


@pytest.mark.parametrize(
    "value",
    [b"", b"[]", b'{"rate": 0}', b'{"rate": "fast"}', b'{"rate": true}', b'{"late_share": 1.1}', b"\xff"],
)
def test_a_message_that_asks_for_what_can_not_be_is_refused(value: bytes) -> None:
    with pytest.raises(Unreadable):
        read_control(value)


@pytest.mark.parametrize("value", [b'{"count_max": 0}', b'{"total_max": -1}', b'{"kmh_max": NaN}'])
def test_limits_that_mean_nothing_are_refused(value: bytes) -> None:
    with pytest.raises(Unreadable):
        read_limits(value, Limits())
