"""Clients that ask for much and don't read it: they take no more memory than they may, and make way.

In plain text answers wait in the log's own files, of which there are only so many, and else in memory. With
TLS it is what was encrypted that waits, in memory.
"""

from __future__ import annotations

import datetime as dt
import os
import re
import socket
import ssl
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Thread
from typing import TYPE_CHECKING, Any

import httpx
import kio.schema.fetch.v12.request
import pytest
import trustme

from headrace.broker import Broker
from headrace.config import KIB, MIB, Address, BrokerConfig, TlsConfig
from headrace.kafka import budget, engine, unsent_answers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

FETCH = 1
VALUE_BYTES = 8_000_000
"""More than a socket takes that nobody reads."""
VALUE = bytes(range(250)) * (VALUE_BYTES // 250)
UNSENT_BYTES_MAX = 8 * MIB


@dataclass(frozen=True, kw_only=True)
class Transport:
    """How clients and broker speak to each other."""

    tls: TlsConfig | None = None
    context: ssl.SSLContext | None = None
    settings: dict[str, str] = field(default_factory=dict)
    """Those of confluent-kafka."""

    def wrap(self, client: Any) -> Any:
        """A client that has connected, speaking in this way."""
        if self.context is not None:
            client.socket = self.context.wrap_socket(client.socket, server_hostname="localhost")
        return client


@pytest.fixture(params=["plain text", "TLS"])
def transport(request: pytest.FixtureRequest, tmp_path: Path) -> Transport:
    if request.param == "plain text":
        return Transport()
    authority = trustme.CA()
    leaf = authority.issue_cert("localhost", "127.0.0.1")
    ca, certificate, key = (tmp_path / name for name in ("ca", "certificate", "key"))
    authority.cert_pem.write_to_path(str(ca))
    certificate.write_bytes(b"".join(each.bytes() for each in leaf.cert_chain_pems))
    key.touch(mode=0o600)
    key.write_bytes(leaf.private_key_pem.bytes())
    return Transport(
        tls=TlsConfig(certificate=certificate, key=key),
        context=ssl.create_default_context(cafile=str(ca)),
        settings={"security_protocol": "SSL", "ssl_ca_location": str(ca)},
    )


def fetch_fields() -> dict[str, Any]:
    schemas: Any = kio.schema.fetch.v12.request
    partition = schemas.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=100_000_000)
    return {
        "max_wait": dt.timedelta(0),
        "min_bytes": 1,
        "topics": (schemas.FetchTopic(topic="large", partitions=(partition,)),),
        "forgotten_topics_data": (),
        "rack_id": "",
    }


def unsent_bytes(broker: Broker) -> int:
    return shown(broker, "headrace_unsent_bytes")


def unsent_files(broker: Broker) -> int:
    return shown(broker, "headrace_unsent_files")


def refuses_connections(broker: Broker) -> bool:
    try:
        socket.create_connection(("127.0.0.1", int(broker.bootstrap.rpartition(":")[2]))).close()
    except ConnectionRefusedError:
        return True
    return False


def shown(broker: Broker, metric: str) -> int:
    # A proxy of the environment must not come between.
    with httpx.Client(trust_env=False, timeout=30) as client:
        text = client.get(broker.metrics_url).text
    found = re.search(rf"^{metric} (\S+)$", text, re.MULTILINE)
    assert found is not None
    return int(float(found[1]))


@pytest.fixture
def no_files_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that waits waits in memory."""
    monkeypatch.setattr(unsent_answers, "HELD_FILES_MAX", 0)


@pytest.mark.usefixtures("no_files_held")
def test_clients_that_do_not_read_take_no_more_than_there_is_room_for_and_make_way_for_others(
    transport: Transport,
    tmp_path: Path,
    raw_at: Callable[[str], Any],
    kafka_at: Callable[..., Any],
    wait_until: Callable[..., Any],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine, "SWEEP_INTERVAL_S", 0.05)
    monkeypatch.setattr(budget, "PACE_WINDOW_S", 0.5)
    config = BrokerConfig(listen=Address("127.0.0.1", 0), durability="os", unsent_bytes_max=UNSENT_BYTES_MAX)
    with Broker(tmp_path / "data", config=config, tls=transport.tls, metrics=True) as broker:
        kafka = kafka_at(broker.bootstrap, **transport.settings)
        kafka.create_topic("large")
        values = [bytes([number]) * VALUE_BYTES for number in range(3)]
        assert kafka.produce("large", values, message_max_bytes=16_000_000) == [0, 1, 2]
        idle = [transport.wrap(raw_at(broker.bootstrap)) for _ in range(4)]
        for client in idle:
            client.send(client.request_frame(FETCH, 12, **fetch_fields()))
        wait_until(lambda: unsent_bytes(broker) >= UNSENT_BYTES_MAX, "answers that nobody reads")
        assert unsent_bytes(broker) < UNSENT_BYTES_MAX + VALUE_BYTES + MIB, "one batch may be above it"

        consumer = kafka.consumer()
        consumer.subscribe(["large"])
        read = kafka.read(consumer, 3)
        assert [message.value() for message in read] == values
        assert unsent_bytes(broker) < UNSENT_BYTES_MAX + VALUE_BYTES + MIB
        assert "took its answers too slowly while others waited" in caplog.text


@pytest.mark.usefixtures("no_files_held")
def test_a_client_that_reads_late_gets_all_of_its_answer_when_nobody_waits_for_room(
    transport: Transport,
    tmp_path: Path,
    raw_at: Callable[[str], Any],
    kafka_at: Callable[..., Any],
    wait_until: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine, "SWEEP_INTERVAL_S", 0.01)
    monkeypatch.setattr(budget, "PACE_WINDOW_S", 0.01)
    config = BrokerConfig(listen=Address("127.0.0.1", 0), durability="os")
    with Broker(tmp_path / "data", config=config, tls=transport.tls, metrics=True) as broker:
        kafka = kafka_at(broker.bootstrap, **transport.settings)
        kafka.create_topic("large")
        assert kafka.produce("large", [VALUE], message_max_bytes=16_000_000) == [0]
        late = transport.wrap(raw_at(broker.bootstrap))
        late.send(late.request_frame(FETCH, 12, **fetch_fields()))
        wait_until(lambda: unsent_bytes(broker), "an answer that nobody reads yet")
        (answered,) = late.receive(FETCH, 12).responses
        assert VALUE in answered.partitions[0].records
        wait_until(lambda: not unsent_bytes(broker), "nothing that waits any more")


@contextmanager
def with_an_answer_that_waits_in_its_file(
    directory: Path, raw_at: Callable[[str], Any], kafka_at: Callable[..., Any], **settings: Any
) -> Iterator[tuple[Broker, Any]]:
    """A broker with a topic, and a client that has asked for all of it and does not read."""
    config = BrokerConfig(listen=Address("127.0.0.1", 0), durability="os", **settings)
    with Broker(directory, config=config, metrics=True) as broker:
        kafka = kafka_at(broker.bootstrap)
        kafka.create_topic("large")
        assert kafka.produce("large", [VALUE], message_max_bytes=16_000_000) == [0]
        client = raw_at(broker.bootstrap)
        client.send(client.request_frame(FETCH, 12, **fetch_fields()))
        yield broker, client


def test_clients_that_do_not_read_take_files_instead_of_memory_and_keep_nobody_from_reading(
    tmp_path: Path,
    raw_at: Callable[[str], Any],
    kafka_at: Callable[..., Any],
    wait_until: Callable[..., Any],
) -> None:
    with with_an_answer_that_waits_in_its_file(tmp_path / "data", raw_at, kafka_at, unsent_bytes_max=MIB) as (
        broker,
        first,
    ):
        others = [raw_at(broker.bootstrap) for _ in range(3)]
        for client in others:
            client.send(client.request_frame(FETCH, 12, **fetch_fields()))
        wait_until(lambda: unsent_files(broker) == 4, "answers that nobody reads")
        assert unsent_bytes(broker) < KIB, "only what goes before and after the batches"

        kafka = kafka_at(broker.bootstrap)
        consumer = kafka.consumer()
        consumer.subscribe(["large"])
        assert [message.value() for message in kafka.read(consumer, 1)] == [VALUE]

        for client in others:
            client.socket.close()
        wait_until(lambda: unsent_files(broker) == 1, "files let go of when their clients go")
        (answered,) = first.receive(FETCH, 12).responses
        assert VALUE in answered.partitions[0].records
        wait_until(lambda: not unsent_files(broker), "nothing that waits any more")
        first.send(first.request_frame(FETCH, 12, **fetch_fields()))
        (answered,) = first.receive(FETCH, 12).responses
        assert VALUE in answered.partitions[0].records, "the connection goes on after it"


def test_requests_behind_an_answer_that_waits_in_its_file_are_answered_after_it(
    tmp_path: Path,
    raw_at: Callable[[str], Any],
    kafka_at: Callable[..., Any],
    wait_until: Callable[..., Any],
) -> None:
    with with_an_answer_that_waits_in_its_file(tmp_path / "data", raw_at, kafka_at) as (broker, client):
        wait_until(lambda: unsent_files(broker), "an answer that nobody reads yet")
        for _ in range(3):
            client.send(client.request_frame(FETCH, 12, **fetch_fields()))
        for _ in range(4):
            (answered,) = client.receive(FETCH, 12).responses
            assert VALUE in answered.partitions[0].records


def test_a_client_that_sends_no_more_still_gets_the_answer_that_waits_in_its_file(
    tmp_path: Path,
    raw_at: Callable[[str], Any],
    kafka_at: Callable[..., Any],
    wait_until: Callable[..., Any],
) -> None:
    with with_an_answer_that_waits_in_its_file(tmp_path / "data", raw_at, kafka_at) as (broker, client):
        wait_until(lambda: unsent_files(broker), "an answer that nobody reads yet")
        client.socket.shutdown(socket.SHUT_WR)

        (answered,) = client.receive(FETCH, 12).responses

        assert VALUE in answered.partitions[0].records
        assert client.socket.recv(1) == b"", "then it closes"


def test_a_client_that_sends_no_more_and_goes_without_reading_is_let_go(
    tmp_path: Path,
    raw_at: Callable[[str], Any],
    kafka_at: Callable[..., Any],
    wait_until: Callable[..., Any],
) -> None:
    with with_an_answer_that_waits_in_its_file(tmp_path / "data", raw_at, kafka_at) as (broker, client):
        wait_until(lambda: unsent_files(broker), "an answer that nobody reads yet")
        client.socket.shutdown(socket.SHUT_WR)
        client.socket.close()
        wait_until(lambda: not unsent_files(broker), "nothing that waits any more")


def test_a_file_that_fails_while_an_answer_waits_in_it_closes_the_connection_and_says_so(
    tmp_path: Path,
    raw_at: Callable[[str], Any],
    kafka_at: Callable[..., Any],
    wait_until: Callable[..., Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    with with_an_answer_that_waits_in_its_file(tmp_path / "data", raw_at, kafka_at) as (broker, client):
        wait_until(lambda: unsent_files(broker), "an answer that nobody reads yet")
        (file,) = (tmp_path / "data").rglob("*large-0*/*.log")
        os.truncate(file, VALUE_BYTES - 1_000_000)

        with pytest.raises(EOFError):
            client.receive(FETCH, 12)

        wait_until(lambda: not unsent_files(broker), "nothing that waits any more")
        assert "the file ends" in caplog.text


def test_a_topic_that_is_deleted_while_an_answer_waits_in_its_file_is_read_to_the_answers_end(
    tmp_path: Path,
    raw_at: Callable[[str], Any],
    kafka_at: Callable[..., Any],
    wait_until: Callable[..., Any],
) -> None:
    with with_an_answer_that_waits_in_its_file(tmp_path / "data", raw_at, kafka_at) as (broker, client):
        wait_until(lambda: unsent_files(broker), "an answer that nobody reads yet")
        assert list((tmp_path / "data").rglob("*large-0*/*.log"))
        admin = kafka_at(broker.bootstrap).admin
        admin.delete_topics(["large"])["large"].result(30)
        wait_until(lambda: not list((tmp_path / "data").rglob("*large-0*/*.log")), "the files are gone")

        (answered,) = client.receive(FETCH, 12).responses

        assert VALUE in answered.partitions[0].records


def test_a_broker_that_stops_sends_what_a_client_still_reads(
    tmp_path: Path,
    raw_at: Callable[[str], Any],
    kafka_at: Callable[..., Any],
    wait_until: Callable[..., Any],
) -> None:
    with with_an_answer_that_waits_in_its_file(tmp_path / "data", raw_at, kafka_at) as (broker, client):
        wait_until(lambda: unsent_files(broker), "an answer that nobody reads yet")
        stopping = Thread(target=broker.stop)
        stopping.start()
        wait_until(lambda: refuses_connections(broker), "a broker that takes no more connections")

        (answered,) = client.receive(FETCH, 12).responses

        assert VALUE in answered.partitions[0].records
        assert client.socket.recv(1) == b"", "then it closes"
        stopping.join()


def test_a_client_that_never_reads_an_answer_that_waits_in_its_file_is_let_go_in_the_end(
    tmp_path: Path,
    raw_at: Callable[[str], Any],
    kafka_at: Callable[..., Any],
    wait_until: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine, "SWEEP_INTERVAL_S", 0.01)
    with with_an_answer_that_waits_in_its_file(
        tmp_path / "data", raw_at, kafka_at, connection_idle_ms_max=2_000
    ) as (broker, client):
        client.send(client.request_frame(FETCH, 12, **fetch_fields()))
        wait_until(lambda: unsent_files(broker), "an answer that nobody reads")
        wait_until(lambda: not unsent_files(broker), "nothing that waits any more")
