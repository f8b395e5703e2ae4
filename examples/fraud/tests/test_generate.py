"""The generated world, and the program that sends it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from examples.fraud.generate import LATE_S_MAX, World, arrivals, transactions
from examples.fraud.reference import Transaction, alerts

import headrace

START = datetime(2026, 1, 1, tzinfo=UTC)
GENERATE = Path(__file__).parents[1] / "generate.py"


def world(seed: int = 1, **settings: float) -> World:
    return World(seed=seed, start=START, rate=settings.pop("rate", 100), **settings)  # type: ignore[arg-type] # shares


def test_the_same_seed_makes_the_same_world() -> None:
    assert list(islice(arrivals(world(1)), 500)) == list(islice(arrivals(world(1)), 500))


def test_another_seed_makes_another_world() -> None:
    assert list(islice(arrivals(world(1)), 500)) != list(islice(arrivals(world(2)), 500))


def test_records_are_sent_at_a_steady_pace() -> None:
    assert [arrival.due_s for arrival in islice(arrivals(world(rate=50)), 4)] == [0.0, 0.02, 0.04, 0.06]


def test_a_record_is_a_json_object_of_about_150_bytes_keyed_by_its_card() -> None:
    for arrival in islice(arrivals(world()), 200):
        fields = json.loads(arrival.value)
        assert list(fields) == ["tx_id", "card_id", "amount", "at", "merchant", "country"]
        assert arrival.key == fields["card_id"]
        assert 120 <= len(arrival.value) <= 160


def test_transaction_ids_are_unique_within_a_world_and_between_starts() -> None:
    later = World(seed=1, start=START + timedelta(seconds=1), rate=100)
    ids = [one.tx_id for one in [*transactions(world(), 2_000), *transactions(later, 2_000)]]

    assert len(set(ids)) == 4_000


def test_events_are_slightly_out_of_order_and_never_from_the_future() -> None:
    stream = list(islice(arrivals(world()), 5_000))
    late_s = [
        arrival.due_s - (arrival.transaction.at - START).total_seconds()
        for arrival in stream
        if arrival.transaction is not None
    ]

    assert min(late_s) > -0.001
    assert max(late_s) <= LATE_S_MAX
    assert 0.02 < sum(late > 0.01 for late in late_s) / len(late_s) < 0.1


@pytest.mark.parametrize("rate", [20, 200, 1_000])
def test_stolen_cards_raise_alerts_and_honest_ones_do_not(rate: int) -> None:
    events = transactions(world(rate=rate), rate * 90)
    found = alerts(
        Transaction(tx_id=one.tx_id, card_id=one.card_id, amount=one.amount, at=one.at) for one in events
    )
    stolen = {one.card_id for one in events if one.merchant in {"electronics", "gift-cards", "jewellery"}}

    assert len(found) > 40
    assert {alert.card_id for alert in found.values()} <= stolen


def test_duplicates_and_malformed_records_come_on_request_only() -> None:
    clean = list(islice(arrivals(world()), 1_000))
    dirty = list(islice(arrivals(world(duplicate_share=0.1, malformed_share=0.1)), 1_000))

    assert all(arrival.transaction is not None for arrival in clean)
    assert Counter(arrival.value for arrival in clean).most_common(1)[0][1] == 1
    assert 50 < sum(arrival.transaction is None for arrival in dirty) < 150
    ids = Counter(arrival.transaction.tx_id for arrival in dirty if arrival.transaction is not None)
    assert 50 < sum(count - 1 for count in ids.values()) < 150


def generate(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(GENERATE), *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def values(bootstrap: str, count: int) -> list[bytes]:
    settings = {"auto.offset.reset": "earliest", "enable.auto.commit": False, "log_level": 0}
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "test", **settings})
    consumer.subscribe(["transactions"])
    found: list[bytes] = []
    try:
        while len(found) < count:
            messages = consumer.consume(count, timeout=30)
            assert messages, f"only {len(found)} of {count} records came"
            found += [message.value() or b"" for message in messages]
    finally:
        consumer.close()
    return found


def test_the_program_sends_what_the_seed_says(headrace_broker: headrace.Broker) -> None:
    options = ["--count", "300", "--seed", "1", "--rate", "100", "--start", "2026-01-01T00:00:00Z", "--fast"]
    with generate("--bootstrap", headrace_broker.bootstrap, *options) as process:
        output, errors = process.communicate(timeout=60)

    assert (process.returncode, errors) == (0, "")
    assert output.splitlines()[-1] == "produced 300 records"
    sent = [arrival.value for arrival in islice(arrivals(world(1)), 300)]
    assert sorted(values(headrace_broker.bootstrap, 300)) == sorted(sent)


def test_the_program_stops_on_sigterm_with_everything_delivered(headrace_broker: headrace.Broker) -> None:
    with generate("--bootstrap", headrace_broker.bootstrap, "--rate", "500") as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("producing 500 transactions a second")
        values(headrace_broker.bootstrap, 1)
        process.send_signal(signal.SIGTERM)
        output, errors = process.communicate(timeout=60)

    assert (process.returncode, errors) == (0, "")
    sent_count = int(output.split()[1])
    assert len(values(headrace_broker.bootstrap, sent_count)) == sent_count


def test_without_a_broker_the_program_says_so_in_a_sentence() -> None:
    with generate("--bootstrap", "127.0.0.1:1") as process:
        _output, errors = process.communicate(timeout=60)

    assert process.returncode == 1
    assert errors.startswith("error: no broker answers at 127.0.0.1:1")
    assert errors.count("\n") == 1
