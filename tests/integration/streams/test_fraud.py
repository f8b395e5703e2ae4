"""The fraud pipelines against an independent reference, on the same log, through a real broker, with crashes.

The alerts of a stream may come in several versions, and in real-time mode more than once: the last one with
an id holds.
"""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import pytest

import card_reference as reference
from card_world import Arrivals, World
from headrace.config import StreamsConfig
from headrace.streams.load import load_pipelines
from headrace.streams.pipeline import Pipeline
from headrace.streams.queries import Queries

pytestmark = pytest.mark.spark

FRAUD = Path(__file__).parents[3] / "examples" / "fraud"
START = datetime(2026, 1, 1, 12, tzinfo=UTC)
BURST_COUNT = 25
WITHOUT_TRAVEL = """
import sys

sys.path.insert(0, {directory!r})

import headrace.streams as hr
import pipeline as original

transactions, profiles = original.transactions, original.profiles


@hr.pipeline(writes=original.alerts)
def fraud_alerts(transactions, profiles):
    return original.fraud_alerts(transactions, profiles).where("rule != 'travel'")
"""
StartQueries = Callable[..., Queries]
Records = list[tuple[str | None, bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A part of the log, by topic."""

    transactions: Records
    profiles: Records


@pytest.fixture(scope="module")
def fraud_alerts() -> Pipeline[Any]:
    (pipeline,) = load_pipelines(f"{FRAUD / 'pipeline.py'}:fraud_alerts")
    return pipeline


@pytest.fixture(scope="module")
def log() -> list[Chunk]:
    """A world with late payments, duplicates, malformed records and changing profiles, in three parts.

    One card is used like mad, in no order; and in the end its holder turns out to be somebody who may do so,
    and has been since half a minute after the beginning.
    """
    random = Random(5)
    world = World(
        seed=5,
        start=START,
        rate=10,
        card_count=200,
        theft_pause_s=2,
        change_pause_s=2,
        late_share=0.1,
        duplicate_share=0.05,
        malformed_share=0.02,
    )
    # How far ahead a clock is depends on when the test runs.
    arrivals = [one for one in islice(Arrivals(world), 1_200) if b'"ahead"' not in one.value]
    burst = [
        burst_use(number, at_ms)
        for number, at_ms in enumerate(random.sample(range(0, 90_000, 7), BURST_COUNT))
    ]
    chunks = []
    for number, part in enumerate((arrivals[:400], arrivals[400:800], arrivals[800:])):
        transactions: Records = [(one.key or None, one.value) for one in part]
        profiles: Records = [(each.card_id, each.encode()) for one in part for each in one.profiles]
        chunks.append(
            Chunk(
                transactions=[*transactions[:100], *burst[number::3], *transactions[100:]],
                profiles=[*profiles, *([burst_profile(0, 3), burst_profile(30, 100)][number - 1 : number])],
            )
        )
    return chunks


def burst_use(number: int, at_ms: int) -> tuple[str, bytes]:
    at = START + timedelta(milliseconds=at_ms)
    fields = {
        "tx_id": f"burst-{number}",
        "card_id": "card-burst",
        "amount": number + 0.25,
        "at": at.isoformat(),
    }
    return "card-burst", json.dumps({**fields, "merchant": "grocer", "lat": 52.5, "lon": 13.4}).encode()


def burst_profile(second: int, count_max: int) -> tuple[str, bytes]:
    since = START + timedelta(seconds=second)
    fields = {"card_id": "card-burst", "holder_id": "holder-burst", "since": since.isoformat()}
    return "card-burst", json.dumps({**fields, "count_max": count_max}).encode()


def expected(chunks: Iterable[Chunk]) -> dict[str, Any]:
    """What the reference says."""
    transactions, profiles = [], []
    for chunk in chunks:
        for key, value in chunk.transactions:
            if key is not None:
                transactions.append(reference.read_transaction(value))
        profiles += [reference.read_profile(value) for _key, value in chunk.profiles]
    model = reference.read_model((FRAUD / "model.json").read_text())
    return reference.alerts(transactions, profiles, model)


def held(records: Iterable[Any]) -> dict[str, Any]:
    """The alerts on the topic that hold."""
    return reference.held(json.loads(record.value) for record in records)


def produce(kafka: Any, chunk: Chunk) -> None:
    kafka.produce("transactions", chunk.transactions)
    # Behind what they are about: which of two topics is read first, nobody knows.
    kafka.produce("card-profiles", chunk.profiles)


def read_until(kafka: Any, wanted: dict[str, Any]) -> list[Any]:
    """Read alerts until they hold what is wanted, then all that is there."""
    known = 0

    def enough(records: list[Any]) -> bool:
        nonlocal known
        if len(records) == known:
            return False
        known = len(records)
        return held(records) == wanted

    found: list[Any] = kafka.read("fraud-alerts", enough)
    return found


@pytest.mark.long
@pytest.mark.parametrize("realtime", [True, False], ids=["real-time", "micro-batch"])
def test_after_kill_9_in_mid_stream_the_alerts_are_still_those_of_the_reference(
    kafka: Any,
    config: StreamsConfig,
    drive: Any,
    log: list[Chunk],
    committed: Any,
    tmp_path: Path,
    *,
    realtime: bool,
) -> None:
    wanted = expected(log)
    assert Counter(alert.rule for alert in wanted.values()).keys() == {
        "velocity",
        "spending",
        "travel",
        "model",
    }
    withdrawn = expected(log[:2]).keys() - wanted.keys()
    assert withdrawn

    first = drive(FRAUD / "pipeline.py", realtime=realtime)
    produce(kafka, log[0])
    # The first batch is committed; then comes the kill, in the middle of another.
    batches = committed("fraud_alerts")
    produce(kafka, log[1])
    read_until(kafka, expected(log[:2]))
    first.kill()
    killed_ms = time.time_ns() // 1_000_000
    # On a slow machine the batch may have been committed before the kill.
    is_open = realtime and commits(config, "fraud_alerts") == batches
    produce(kafka, log[2])
    second = drive(FRAUD / "pipeline.py", realtime=realtime)
    records = read_until(kafka, wanted)
    await_statuses(kafka, wanted)
    others = {
        "transactions.dead-letters": sum(key is None for chunk in log for key, _value in chunk.transactions),
        # The log is months old, so all of it is late.
        "transactions.late": sum(key is not None for chunk in log for key, _value in chunk.transactions),
    }
    for topic, count in others.items():
        found = await_count(kafka, topic, count)
        assert found == count or realtime, f"{topic} has {found} records instead of {count}"

    assert second.end(signal.SIGTERM) == (0, "")
    if not realtime:
        verify_alerts(config, tmp_path, log)
    versions = [json.loads(record.value) for record in records]
    assert all(version["complete"] for version in versions)
    # All that came in before the kill had its alerts by then, so those that name it later come a second time.
    again = [
        version
        for record, version in zip(records, versions, strict=True)
        if record.timestamp_ms >= killed_ms and version["sent_at"] < killed_ms
    ]
    assert again or not is_open, "the kill hit an open batch, which was not run again"


def verify_alerts(config: StreamsConfig, directory: Path, log: list[Chunk]) -> None:
    """By a rule that was changed, the difference is listed, and nothing else is different."""
    changed = directory / "changed.py"
    changed.write_text(WITHOUT_TRAVEL.format(directory=str(FRAUD)))
    # In a process of its own, as users do it: a plan of this size takes a good part of a driver's memory.
    command = [sys.executable, "-m", "headrace", "verify", f"{changed}:fraud_alerts", "--json"]
    where = ["--bootstrap", config.bootstrap, "--data", str(config.data_dir)]
    done = subprocess.run([*command, *where], capture_output=True, text=True, check=False)

    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    wanted = expected(log)
    listed = {(each["kind"], each["key"]) for each in found["differences"]}
    travels = {alert_id for alert_id, alert in wanted.items() if alert.rule == "travel"}
    assert listed == {("unexpected", alert_id) for alert_id in travels}
    assert (found["written_count"], found["computed_count"]) == (len(wanted), len(wanted) - len(travels))


def await_count(kafka: Any, topic: str, count: int) -> int:
    """Wait until the topic has at least so many records; returns how many it has."""
    return len(kafka.read(topic, lambda found: len(found) >= count))


def await_statuses(kafka: Any, alerts: dict[str, Any]) -> None:
    """Wait until each holder was found suspicious as often as there are alerts that hold."""
    counts = Counter(alert.holder_id for alert in alerts.values())
    cards = {
        alert.holder_id: {one.card_id for one in alerts.values() if one.holder_id == alert.holder_id}
        for alert in alerts.values()
    }
    # Of two cards of one holder, nobody knows which status was written last.
    wanted = {
        card: (holder, counts[holder], "blocked" if counts[holder] >= 3 else "watched")
        for holder, (card, *others) in cards.items()
        if not others
    }
    known = 0

    def enough(records: list[Any]) -> bool:
        nonlocal known
        if len(records) == known:
            return False
        known = len(records)
        last = {status["card_id"]: status for status in (json.loads(record.value) for record in records)}
        found = {
            card: (status["holder_id"], status["suspicious_count"], status["status"])
            for card, status in last.items()
            if card in wanted
        }
        return found == wanted

    kafka.read("card-status", enough)


def test_an_alert_tells_when_the_record_that_made_it_fire_was_sent(
    kafka: Any, start: StartQueries, fraud_alerts: Pipeline[Any]
) -> None:
    start(fraud_alerts, realtime=True)
    before_ms = time.time_ns() // 1_000_000
    for number in range(6):
        kafka.produce("transactions", [("c", used(f"t{number}", f"2026-01-01T00:00:0{number}Z"))])
    after_ms = time.time_ns() // 1_000_000

    records = kafka.read("fraud-alerts", lambda found: any(b"velocity" in record.value for record in found))

    (alert,) = (
        each for each in map(json.loads, (one.value for one in records)) if each["rule"] == "velocity"
    )
    assert alert["tx_id"] == "t5"
    assert before_ms <= alert["sent_at"] <= after_ms


def used(tx_id: str, at: str) -> str:
    return json.dumps({"tx_id": tx_id, "card_id": "c", "amount": 1, "at": at, "lat": 0, "lon": 0})


def test_more_than_the_history_holds_is_told_and_not_passed_over(
    kafka: Any, start: StartQueries, fraud_alerts: Pipeline[Any]
) -> None:
    transactions = [used(f"t{number:03}", f"2026-01-01T00:00:00.{number:03}Z") for number in range(120)]
    kafka.produce("transactions", [("c", one) for one in transactions])
    start(fraud_alerts, realtime=False)

    alerts = kafka.read(
        "fraud-alerts",
        lambda records: any(json.loads(record.value)["rule"] == "history-overflow" for record in records),
    )

    by_rule = {alert["rule"]: alert for alert in (json.loads(record.value) for record in alerts)}
    overflow = by_rule["history-overflow"]
    assert overflow["tx_id"] == "t119"
    # Its id is of the card and the day: where the batch ends does not matter.
    assert overflow["alert_id"] == hashlib.sha256(b"history-overflow/c/2026-01-01").hexdigest()[:32]
    assert by_rule["velocity"]["complete"] is False


def commits(config: StreamsConfig, query: str) -> set[str]:
    """The batches that the query has committed."""
    return {path.name for path in (config.checkpoints_dir / query / "commits").glob("[0-9]*")}
