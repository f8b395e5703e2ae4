"""The console against a real broker and a real client."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from headrace import Broker
from headrace.config import Address, BrokerConfig, ConsoleConfig

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from pathlib import Path

    from tests.integration.console.conftest import RunningConsole, Topics

    Console = Callable[[ConsoleConfig], AbstractContextManager[RunningConsole]]
    Eventually = Callable[..., Any]


def test_alerts_arrive_once_each_with_their_latency(
    console: Console, config: ConsoleConfig, topics: Topics, eventually: Eventually
) -> None:
    with console(config) as page:
        eventually(lambda: page.stats()["alerts"]["exists"])
        topics.alert("a", "b", "c")
        eventually(lambda: page.alert_ids() == ["a", "b", "c"])
        stats = page.stats()
        assert (stats["alerts"]["alert_count"], stats["alerts"]["repeat_count"]) == (3, 0)
        assert stats["latency"]["count"] == 3
        assert all(0 <= row["latency_ms"] <= 10_000 for row in page.alerts())


def test_repeats_and_garbage_are_counted(
    console: Console, config: ConsoleConfig, topics: Topics, eventually: Eventually
) -> None:
    with console(config) as page:
        topics.alert("a", "b", "a")
        topics.send("fraud-alerts", b"\xff garbage")
        eventually(lambda: page.stats()["alerts"]["undecodable_count"] == 1)
        stats = page.stats()["alerts"]
        assert (stats["alert_count"], stats["repeat_count"]) == (2, 1)
        assert [row["kind"] for row in page.alerts()] == ["alert", "alert", "undecodable"]


def test_what_was_there_before_is_shown_from_the_newest_and_has_no_latency(
    console: Console, config: ConsoleConfig, topics: Topics, eventually: Eventually
) -> None:
    topics.alert(*(f"old-{number}" for number in range(30)))
    with console(replace(config, recent_alert_count_max=10)) as page:
        eventually(lambda: page.alert_ids() == [f"old-{number}" for number in range(20, 30)])
        assert page.stats()["latency"]["count"] == 0
        assert {row["latency_ms"] for row in page.alerts()} == {None}
        topics.alert("new")
        eventually(lambda: page.stats()["latency"]["count"] == 1)
        assert page.alerts()[-1]["live"]


def test_a_console_that_is_first_waits_for_the_topics_and_creates_nothing(
    console: Console,
    config: ConsoleConfig,
    headrace_broker: Broker,
    topics_of: type[Topics],
    eventually: Eventually,
) -> None:
    with console(config) as page:
        eventually(lambda: page.get("/health")["status"] == "waiting")
        later = topics_of(headrace_broker.bootstrap)
        assert list(later.admin.list_topics(timeout=10).topics) == []
        later.create("transactions")
        later.create("fraud-alerts")
        later.alert("a")
        later.send("transactions", b"1")
        eventually(lambda: page.alert_ids() == ["a"])
        eventually(lambda: page.get("/health")["status"] == "live")


def test_a_console_leaves_no_group_behind(
    console: Console, config: ConsoleConfig, topics: Topics, eventually: Eventually
) -> None:
    with console(config) as page:
        topics.alert("a")
        eventually(lambda: page.alert_ids() == ["a"])
        groups = topics.admin.list_consumer_groups().result(10)
        assert [group.group_id for group in groups.valid] == []


def test_all_partitions_are_read(
    console: Console,
    config: ConsoleConfig,
    headrace_broker: Broker,
    topics_of: type[Topics],
    eventually: Eventually,
) -> None:
    topics = topics_of(headrace_broker.bootstrap)
    topics.create("transactions")
    topics.create("fraud-alerts", partition_count=3)
    with console(config) as page:
        for partition in range(3):
            topics.alert(f"p{partition}", partition=partition)
        eventually(lambda: sorted(page.alert_ids()) == ["p0", "p1", "p2"])


def test_the_rate_counts_what_is_appended_to_the_input(
    console: Console, config: ConsoleConfig, topics: Topics, eventually: Eventually
) -> None:
    with console(config) as page:
        eventually(lambda: page.stats()["input"]["per_s"] == 0.0)
        topics.send("transactions", *([b"{}"] * 1_000))
        eventually(lambda: page.stats()["input"]["per_s"] > 100)
        topics.alert("a", "b")
        eventually(lambda: page.stats()["alerts"]["last_minute"] == 2)


def test_a_topic_that_is_deleted_and_made_anew_is_read_from_its_beginning(
    console: Console, config: ConsoleConfig, topics: Topics, eventually: Eventually
) -> None:
    with console(config) as page:
        topics.alert("a", "b")
        eventually(lambda: page.alert_ids() == ["a", "b"])
        topics.delete("fraud-alerts")
        eventually(lambda: not page.stats()["alerts"]["exists"])
        topics.create("fraud-alerts")
        topics.alert("c")
        eventually(lambda: page.alert_ids() == ["a", "b", "c"])


@pytest.fixture
def durable_broker(tmp_path: Path) -> BrokerConfig:
    """A broker that keeps its port and its data; it has run once."""
    config = BrokerConfig(listen=Address("127.0.0.1", 0))
    with Broker(tmp_path / "data", config=config) as broker:
        return replace(config, listen=broker.address)


def test_a_broker_that_goes_away_is_said_and_its_return_is_noticed_without_loss_or_repeat(
    console: Console,
    durable_broker: BrokerConfig,
    topics_of: type[Topics],
    tmp_path: Path,
    eventually: Eventually,
) -> None:
    bootstrap = str(durable_broker.listen)
    broker = Broker(tmp_path / "data", config=durable_broker).start()
    try:
        topics_of(bootstrap).create("fraud-alerts")
        with console(ConsoleConfig(listen=Address("127.0.0.1", 0), bootstrap=bootstrap)) as page:
            topics_of(bootstrap).alert("a", "b")
            eventually(lambda: page.alert_ids() == ["a", "b"])
            broker.stop()
            eventually(lambda: page.get("/health")["status"] == "unreachable")
            assert f"broker {bootstrap} not reachable for" in page.get("/health")["words"]
            broker.start()
            topics_of(bootstrap).alert("c")
            eventually(lambda: page.alert_ids() == ["a", "b", "c"])
            eventually(lambda: page.get("/health")["status"] == "waiting")
            assert page.stats()["alerts"]["repeat_count"] == 0
    finally:
        broker.stop()


def test_a_broker_that_comes_back_empty_is_read_from_the_beginning(
    console: Console,
    durable_broker: BrokerConfig,
    topics_of: type[Topics],
    tmp_path: Path,
    eventually: Eventually,
) -> None:
    bootstrap = str(durable_broker.listen)
    with console(ConsoleConfig(listen=Address("127.0.0.1", 0), bootstrap=bootstrap)) as page:
        with Broker(tmp_path / "first", config=durable_broker):
            topics = topics_of(bootstrap)
            topics.create("fraud-alerts")
            topics.alert("a", "b", "c")
            eventually(lambda: page.alert_ids() == ["a", "b", "c"])
        with Broker(tmp_path / "second", config=durable_broker):
            topics = topics_of(bootstrap)
            topics.create("fraud-alerts")
            topics.alert(*"defgh")
            eventually(lambda: sorted(page.alert_ids()) == list("abcdefgh"))
            topics.alert("i")
            eventually(lambda: page.alert_ids()[-1] == "i")
            assert page.alerts()[-1]["live"]


def test_a_stream_that_reconnects_over_http_gets_exactly_what_it_missed(
    console: Console, config: ConsoleConfig, topics: Topics, eventually: Eventually
) -> None:
    def read(url: str, last_event_id: str, count: int) -> tuple[list[str], str]:
        ids, last = list[str](), last_event_id
        with httpx.stream("GET", url + "/events", headers={"Last-Event-ID": last_event_id}) as stream:
            for line in stream.iter_lines():
                if line.startswith("id: "):
                    last = line.removeprefix("id: ")
                if line.startswith("data: ") and "alert_id" in line:
                    ids.append(json.loads(line.removeprefix("data: "))["alert_id"])
                if len(ids) == count:
                    break
        return ids, last

    with console(config) as page:
        topics.alert("a", "b")
        ids, last = read(page.url, "", 2)
        assert ids == ["a", "b"]
        topics.alert("c", "d", "a")
        eventually(lambda: page.stats()["alerts"]["repeat_count"] == 1)
        assert read(page.url, last, 3)[0] == ["c", "d", "a"]
