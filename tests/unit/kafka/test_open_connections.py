"""How many connections may be open, in all and from one address."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.config import Address, BrokerConfig
from headrace.kafka.dispatch import Peer
from headrace.kafka.open_connections import WARNING_INTERVAL_S, OpenConnections


class Bench:
    """Connections that are only counted."""

    def __init__(self) -> None:
        config = BrokerConfig(connection_count_max=5, connection_count_per_address_max=2)
        self.now_s = 0.0
        self.connections = OpenConnections(config, lambda: self.now_s)

    def take(self, host: str) -> Any:
        connection: Any = object()
        return connection if self.connections.take(connection, host) else None


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_an_address_may_open_so_many_and_then_others_still_may(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    first = bench.take("10.0.0.7")
    assert bench.take("10.0.0.7")
    assert bench.take("10.0.0.7") is None
    assert "from 10.0.0.7 was refused: 2 are open from there" in caplog.text
    assert bench.take("10.0.0.8")
    bench.connections.give_back(first)
    assert bench.take("10.0.0.7")


def test_no_more_than_the_maximum_are_open_in_all(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    assert all(bench.take(f"10.0.0.{number}") for number in range(5))
    assert bench.take("10.0.0.9") is None
    assert "connection_count_max allows no more" in caplog.text
    assert (len(bench.connections), bench.connections.refused_count) == (5, 1)


def test_giving_back_what_was_not_taken_changes_nothing(bench: Bench) -> None:
    assert bench.take("10.0.0.7")
    stranger: Any = object()
    bench.connections.give_back(stranger)
    assert len(bench.connections) == 1


def test_whoever_is_refused_a_thousand_times_fills_no_disk_with_log_lines(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(1_000):
        bench.take("10.0.0.7")
    assert len(caplog.records) == 1
    bench.now_s = WARNING_INTERVAL_S
    bench.take("10.0.0.7")
    assert "refused so far: 999" in caplog.records[-1].getMessage()


def test_nothing_is_taken_once_the_broker_stops(bench: Bench) -> None:
    bench.connections.is_closed = True
    assert bench.take("10.0.0.7") is None


def test_a_client_that_comes_back_all_the_time_fills_five_lines_in_ten_seconds(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    def close(host: str) -> None:
        peer = Peer(host=host, port=1, address=Address("127.0.0.1", 9092), session=None)
        bench.connections.warn_of_closing(peer, "it speaks no TLS")

    for _ in range(200):
        close("10.0.0.7")
    close("10.0.0.8")
    assert caplog.text.count("closing the connection of 10.0.0.7:1: it speaks no TLS") == 5
    assert caplog.text.count("more of this from there is not logged for 10 seconds") == 1
    assert caplog.text.count("closing the connection of 10.0.0.8:1") == 1
    bench.now_s += WARNING_INTERVAL_S
    close("10.0.0.7")
    assert caplog.text.count("closing the connection of 10.0.0.7:1") == 6
