"""The fraud pipeline against an independent reference, on the same events, through a real broker.

The alerts of a stream are at least once and may come in several versions: the last one with an id holds.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

from headrace.config import StreamsConfig
from headrace.streams.load import load_pipelines
from headrace.streams.pipeline import Pipeline
from headrace.streams.queries import Queries

pytestmark = pytest.mark.spark

FRAUD = Path(__file__).parents[3] / "examples" / "fraud"
START = datetime(2026, 1, 1, tzinfo=UTC)
BURST_COUNT = 45
StartQueries = Callable[..., Queries]


@pytest.fixture(scope="module")
def velocity_alerts() -> Pipeline[Any]:
    (pipeline,) = load_pipelines(str(FRAUD / "pipeline.py"))
    return pipeline


@pytest.fixture(scope="module")
def world() -> list[Any]:
    """Records: a generated world with duplicates and malformed ones, and a card that is used like mad."""
    from examples.fraud import generate  # noqa: PLC0415 - importable once the fixtures are set up

    random = Random(5)
    settings = generate.World(
        seed=5, start=START, rate=20, card_count=200, duplicate_share=0.05, malformed_share=0.02
    )
    stream = generate.arrivals(settings)
    records = [next(stream) for _ in range(1_500)]
    # More than a minute's worth, out of order, all in one breath.
    burst = [
        _burst_use(generate, number, at_ms)
        for number, at_ms in enumerate(random.sample(range(0, 90_000, 7), BURST_COUNT))
    ]
    return [*records[:700], *burst, *records[700:]]


def _burst_use(generate: Any, number: int, at_ms: int) -> Any:
    transaction = generate.Transaction(
        tx_id=f"burst-{number}",
        card_id="card-burst",
        amount=number + 0.25,
        at=START + timedelta(milliseconds=at_ms),
        merchant="electronics",
        country="DE",
    )
    return generate.Arrival(
        due_s=0.0, key=transaction.card_id, value=transaction.encode(), transaction=transaction
    )


def expected(records: Iterable[Any]) -> dict[str, Any]:
    """What the reference says."""
    from examples.fraud import reference  # noqa: PLC0415 - importable once the fixtures are set up

    return reference.alerts(
        reference.Transaction(
            tx_id=one.transaction.tx_id,
            card_id=one.transaction.card_id,
            amount=one.transaction.amount,
            at=one.transaction.at,
        )
        for one in records
        if one.transaction is not None
    )


def held(records: Iterable[Any]) -> dict[str, Any]:
    """The last version of each alert on the topic."""
    from examples.fraud import reference  # noqa: PLC0415 - importable once the fixtures are set up

    alerts = (reference.read_alert(json.loads(record.value)) for record in records)
    return {alert.alert_id: alert for alert in alerts}


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


@pytest.mark.parametrize("realtime", [True, False], ids=["real-time", "micro-batch"])
def test_the_alerts_are_those_of_the_reference(
    kafka: Any, start: StartQueries, velocity_alerts: Pipeline[Any], world: list[Any], *, realtime: bool
) -> None:
    wanted = expected(world)
    assert len(wanted) > 50
    assert max(alert.count for alert in wanted.values()) > 20

    start(velocity_alerts, realtime=realtime)
    kafka.produce("transactions", [(one.key or None, one.value) for one in world])

    alerts = [json.loads(record.value) for record in read_until(kafka, wanted)]
    assert {alert["rule"] for alert in alerts} == {"velocity"}
    assert all(alert["complete"] for alert in alerts)
    dead_count = sum(one.transaction is None for one in world)
    kafka.read_count("transactions.dead-letters", dead_count)


def test_an_alert_tells_when_the_record_that_made_it_fire_was_sent(
    kafka: Any, start: StartQueries, velocity_alerts: Pipeline[Any]
) -> None:
    start(velocity_alerts, realtime=True)
    before_ms = time.time_ns() // 1_000_000
    for number in range(6):
        transaction = {
            "tx_id": f"t{number}",
            "card_id": "c",
            "amount": 1,
            "at": f"2026-01-01T00:00:0{number}Z",
        }
        kafka.produce("transactions", [("c", json.dumps(transaction))])
    after_ms = time.time_ns() // 1_000_000

    (alert,) = [json.loads(record.value) for record in kafka.read_count("fraud-alerts", 1)]

    assert alert["tx_id"] == "t5"
    assert before_ms <= alert["sent_at"] <= after_ms


def test_more_than_the_history_holds_is_told_and_not_passed_over(
    kafka: Any, start: StartQueries, velocity_alerts: Pipeline[Any]
) -> None:
    transactions = [
        {"tx_id": f"t{number:03}", "card_id": "c", "amount": 1, "at": f"2026-01-01T00:00:00.{number:03}Z"}
        for number in range(120)
    ]
    kafka.produce("transactions", [("c", json.dumps(one)) for one in transactions])
    start(velocity_alerts, realtime=False)

    alerts = kafka.read(
        "fraud-alerts",
        lambda records: any(json.loads(record.value)["rule"] == "history-overflow" for record in records),
    )

    by_rule = {alert["rule"]: alert for alert in (json.loads(record.value) for record in alerts)}
    assert by_rule["history-overflow"]["tx_id"] == "t119"
    assert by_rule["velocity"]["complete"] is False


def test_after_kill_9_in_mid_stream_the_alerts_are_still_those_of_the_reference(
    kafka: Any, config: StreamsConfig, drive: Any, world: list[Any], committed: Any
) -> None:
    records = [(one.key or None, one.value) for one in world]
    third = len(records) // 3

    first = drive(FRAUD / "pipeline.py", realtime=True)
    kafka.produce("transactions", records[:third])
    # The first batch is committed; then comes the kill, in the middle of the second.
    batches = committed("velocity_alerts")
    kafka.produce("transactions", records[third : 2 * third])
    read_until(kafka, expected(world[: 2 * third]))
    first.kill()
    killed_ms = time.time_ns() // 1_000_000
    # On a slow machine the second batch may have been committed before the kill.
    is_open = commits(config, "velocity_alerts") == batches
    kafka.produce("transactions", records[2 * third :])
    second = drive(FRAUD / "pipeline.py", realtime=True)
    alerts = read_until(kafka, expected(world))

    assert second.end(signal.SIGTERM) == (0, "")
    # All that came in before the kill had its alerts by then, so those that name it later come a second time.
    again = [
        record
        for record in alerts
        if record.timestamp_ms >= killed_ms and json.loads(record.value)["sent_at"] < killed_ms
    ]
    assert again or not is_open, "the kill hit an open batch, which was not run again"


def commits(config: StreamsConfig, query: str) -> set[str]:
    """The batches that the query has committed."""
    return {path.name for path in (config.checkpoints_dir / query / "commits").glob("[0-9]*")}
