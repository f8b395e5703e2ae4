"""Metrics and health over HTTP, read by Prometheus' own parser."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from headrace.broker import Broker
from headrace.config import Address, BrokerConfig
from headrace.errors import ConfigError, UsageError
from headrace.log import disk
from headrace.metrics import server as metrics_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

METADATA, PRODUCE = 3, 0


class Scraped:
    """The samples of one scrape, by name and labels."""

    def __init__(self, text: str) -> None:
        self._samples = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def get(self, name: str, **labels: str) -> float | None:
        return self._samples.get((f"headrace_{name}", frozenset(labels.items())))

    def names(self) -> set[str]:
        return {name for name, _ in self._samples}


def get(url: str, **headers: str) -> httpx.Response:
    # A proxy of the environment must not come between.
    with httpx.Client(trust_env=False, timeout=30) as client:
        return client.get(url, headers=headers)


def scrape(broker: Broker) -> Scraped:
    answer = get(broker.metrics_url)
    assert answer.status_code == 200
    return Scraped(answer.text)


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path / "data", metrics=True) as broker:
        yield broker


def test_what_clients_do_is_counted(watched: Broker, kafka_at: Callable[[str], Any]) -> None:
    kafka = kafka_at(watched.bootstrap)
    kafka.create_topic("orders", 2)
    kafka.produce("orders", [b"x" * 100] * 30)
    consumer = kafka.consumer("readers")
    consumer.subscribe(["orders"])
    kafka.read(consumer, 10)
    scraped = scrape(watched)
    assert scraped.get("topic_produced_records_total", topic="orders") == 30
    assert (scraped.get("topic_produced_bytes_total", topic="orders") or 0) > 3_000
    fetched, produced = (
        scraped.get(f"topic_{name}_bytes_total", topic="orders") or 0 for name in ("fetched", "produced")
    )
    assert fetched >= produced
    assert scraped.get("partition_end_offset", topic="orders", partition="0") == 30
    assert scraped.get("partition_high_watermark", topic="orders", partition="0") == 30
    assert scraped.get("partition_start_offset", topic="orders", partition="0") == 0
    assert (scraped.get("partition_size_bytes", topic="orders", partition="0") or 0) > 3_000
    assert scraped.get("partition_end_offset", topic="orders", partition="1") == 0
    assert scraped.get("request_duration_seconds_count", api="CreateTopics") == 1
    assert (scraped.get("request_duration_seconds_bucket", api="Produce", le="+Inf") or 0) >= 1
    assert (scraped.get("sync_duration_seconds_count") or 0) >= 1
    assert (scraped.get("received_bytes_total") or 0) > 3_000
    assert (scraped.get("sent_bytes_total") or 0) > 1_000
    assert (scraped.get("connections") or 0) >= 2
    assert scraped.get("groups", state="Stable") == 1
    assert scraped.get("writable") == 1


def test_share_groups_are_counted_by_themselves(watched: Broker, raw_at: Callable[[str], Any]) -> None:
    raw = raw_at(watched.bootstrap)
    for group_id, epochs in (("parcels", (0,)), ("letters", (0, -1))):
        for epoch in epochs:
            raw.request(
                76,
                1,
                group_id=group_id,
                member_id="a",
                member_epoch=epoch,
                subscribed_topic_names=("orders",),
            )
    scraped = scrape(watched)
    assert scraped.get("share_groups", state="Stable") == 1
    assert scraped.get("share_groups", state="Empty") == 1
    assert scraped.get("groups", state="Stable") is None


def test_the_lag_of_a_group_is_what_it_has_not_committed(
    watched: Broker, kafka_at: Callable[[str], Any]
) -> None:
    kafka = kafka_at(watched.bootstrap)
    kafka.produce("orders", [b"x"] * 10)
    consumer = kafka.consumer("readers")
    consumer.subscribe(["orders"])
    message = kafka.read(consumer, 4)[-1]
    consumer.commit(message, asynchronous=False)
    lag = scrape(watched).get("group_lag", group="readers", topic="orders", partition="0")
    assert lag == 10 - (message.offset() + 1)


def test_fetches_that_wait_for_data_are_counted_while_they_do(
    watched: Broker, kafka_at: Callable[[str], Any], wait_until: Callable[..., Any]
) -> None:
    kafka = kafka_at(watched.bootstrap)
    kafka.create_topic("orders")
    consumer = kafka.consumer("readers", fetch_wait_max_ms=10_000)
    consumer.subscribe(["orders"])
    consumer.poll(0.1)
    wait_until(lambda: consumer.poll(0.01) or scrape(watched).get("parked_fetches") == 1, "a parked fetch")


def test_errors_in_answers_are_counted_by_their_names(watched: Broker, raw_at: Callable[[str], Any]) -> None:
    raw = raw_at(watched.bootstrap)
    assert raw.request(METADATA, 1, topics=None).topics == ()
    schemas: Any = raw.request(60, 1, include_cluster_authorized_operations=False, endpoint_type=2)
    assert schemas.error_code.name == "mismatched_endpoint_type"
    scraped = scrape(watched)
    errors = scraped.get("request_errors_total", api="DescribeCluster", error="MISMATCHED_ENDPOINT_TYPE")
    assert errors == 1


def test_log_ins_are_counted(raw_at: Callable[[str], Any]) -> None:
    with Broker(users={"ann": "secret"}, metrics=True) as broker:
        for password in ("secret", "wrong"):
            raw = raw_at(broker.bootstrap)
            raw.request(17, 1, mechanism="PLAIN")
            raw.request(36, 1, auth_bytes=f"\0ann\0{password}".encode())
        scraped = scrape(broker)
        assert scraped.get("logins_total", mechanism="PLAIN", outcome="success") == 1
        assert scraped.get("logins_total", mechanism="PLAIN", outcome="failure") == 1


def test_two_brokers_in_one_process_count_for_themselves(kafka_at: Callable[[str], Any]) -> None:
    with Broker(metrics=True) as left, Broker(metrics=True) as right:
        kafka_at(left.bootstrap).produce("orders", [b"x"] * 3)
        kafka_at(right.bootstrap).produce("orders", [b"x"] * 5)
        assert scrape(left).get("topic_produced_records_total", topic="orders") == 3
        assert scrape(right).get("topic_produced_records_total", topic="orders") == 5
        assert scrape(right).get("request_duration_seconds_count", api="CreateTopics") is None


def test_open_metrics_are_served_to_who_asks_for_them(watched: Broker) -> None:
    answer = get(watched.metrics_url, Accept="application/openmetrics-text; version=1.0.0")
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")


def test_every_number_is_documented(watched: Broker) -> None:
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "monitor-the-broker.md").read_text()
    families = text_string_to_metric_families(get(watched.metrics_url).text)
    kinds = {"counter": "_total"}
    names = {
        each.name.removeprefix("headrace_") + kinds.get(each.type, "")
        for each in families
        if each.name.startswith("headrace_")
    }
    assert len(names) > 20
    assert {name for name in names if f"`{name}`" not in page} == set()


def test_the_numbers_of_the_process_are_there_too(watched: Broker) -> None:
    assert "process_resident_memory_bytes" in scrape(watched).names()


def test_health_is_good_while_writes_are_taken_and_bad_once_the_disk_has_failed(
    watched: Broker, raw_at: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch, kafka_at: Any
) -> None:
    health = watched.metrics_url.replace("/metrics", "/health/")
    assert get(health + "live").json() == {"live": True}
    assert get(health + "ready").json() == {"ready": True}
    kafka = kafka_at(watched.bootstrap)
    kafka.create_topic("orders")

    def fail(*_arguments: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(disk.SystemDisk, "append", fail)
    producer = kafka.producer(message_timeout_ms=1_000)
    producer.produce("orders", b"x")
    producer.flush(30)
    answer = get(health + "ready")
    assert answer.status_code == 503
    assert "No space left on device" in answer.json()["reason"]
    assert get(health + "live").status_code == 200
    assert scrape(watched).get("writable") == 0


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/metrics", {"Host": "evil.example:80"}, 403),
        ("/health/ready", {"Host": "evil.example:80"}, 403),
        ("/elsewhere", {}, 404),
    ],
)
def test_strangers_and_unknown_paths_are_refused(
    watched: Broker, path: str, headers: dict[str, str], status: int
) -> None:
    answer = get(watched.metrics_url.replace("/metrics", path), **headers)
    assert answer.status_code == status
    assert "headrace_" not in answer.text


def test_a_head_has_no_body(watched: Broker) -> None:
    with httpx.Client(trust_env=False) as client:
        answer = client.head(watched.metrics_url)
        assert (answer.status_code, answer.content) == (200, b"")
        assert client.post(watched.metrics_url).status_code == 405


def connect(broker: Broker) -> socket.socket:
    port = httpx.URL(broker.metrics_url).port
    return socket.create_connection(("127.0.0.1", port or 0), timeout=30)


@pytest.mark.parametrize("data", [b"\x16\x03\x01\x02\x00" * 10, b"GET /\r\n\r\n", b"x" * 100_000])
def test_what_is_not_http_is_cut_off(watched: Broker, data: bytes) -> None:
    with connect(watched) as client:
        client.sendall(data)
        with suppress(ConnectionResetError):
            assert client.recv(100) == b""
    assert scrape(watched).get("writable") == 1


def test_a_request_that_never_comes_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_server, "CONNECTION_S_MAX", 0.05)
    with Broker(metrics=True) as broker, connect(broker) as client:
        client.sendall(b"GET /metrics HT")
        assert client.recv(100) == b""


def test_more_connections_than_allowed_are_closed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_server, "CONNECTION_COUNT_MAX", 1)
    with Broker(metrics=True) as broker, connect(broker), connect(broker) as second:
        assert second.recv(100) == b""


def test_a_mistake_in_collecting_is_answered_and_logged(
    watched: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_arguments: object) -> None:
        raise ZeroDivisionError

    server: Any = watched._server
    monkeypatch.setattr(server._metrics, "render", fail)
    assert get(watched.metrics_url).status_code == 500
    assert "ZeroDivisionError" in caplog.text


def test_metrics_beyond_loopback_must_be_allowed(tmp_path: Path) -> None:
    everywhere = Address("0.0.0.0", 0)  # noqa: S104  # that is the test
    local = BrokerConfig(listen=Address("127.0.0.1", 0))
    with pytest.raises(ConfigError, match="--metrics-public"):
        replace(local, metrics_listen=everywhere)
    public = replace(local, metrics_listen=everywhere, metrics_public=True)
    with Broker(tmp_path, config=public) as broker:
        url = broker.metrics_url.replace("0.0.0.0", "127.0.0.1")  # noqa: S104  # the same
        assert get(url, Host="prometheus-sees-me-as:9404").status_code == 200


def test_a_metrics_port_that_is_taken_is_reported_where_the_broker_was_started(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config = BrokerConfig(
            listen=Address("127.0.0.1", 0), metrics_listen=Address("127.0.0.1", taken.getsockname()[1])
        )
        with pytest.raises(ConfigError, match="can't listen on"):
            Broker(tmp_path, config=config).start()


def test_a_broker_without_metrics_says_how_to_get_them(tmp_path: Path) -> None:
    with Broker(tmp_path) as broker, pytest.raises(UsageError, match="metrics=True"):
        _ = broker.metrics_url
