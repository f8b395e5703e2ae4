"""Whatever a peer sends, only its own connection suffers."""

from __future__ import annotations

import datetime as dt
import random
import socket
import ssl
import struct
from typing import TYPE_CHECKING, Any

import kio.schema.fetch.v12.request
import kio.schema.join_group.v3.request
import psutil
import pytest
from confluent_kafka import TopicPartition

from headrace.broker import Broker
from headrace.config import MIB, Address, BrokerConfig
from headrace.kafka import budget, client_connection, engine
from headrace.kafka.api import APIS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PRODUCE, FETCH, METADATA, JOIN_GROUP, SYNC_GROUP = 0, 1, 3, 11, 14
MAY_WAIT = {FETCH, JOIN_GROUP, SYNC_GROUP}
"""Requests that are answered when something happens, or when the time that they name is over."""


@pytest.fixture(autouse=True)
def others_are_served_meanwhile(kafka: Any, raw_at: Callable[[str], Any], broker: Broker) -> Any:
    """A neighbour that was connected before the trouble, and one that comes after it, are served."""
    neighbour = raw_at(broker.bootstrap)
    kafka.create_topic("orders")
    yield
    topics = neighbour.request(METADATA, 1, topics=None).topics
    assert [topic.name for topic in topics if not topic.is_internal] == ["orders"]
    assert kafka.produce("orders", [b"still here"])


def assert_refused(raw: Any, caplog: pytest.LogCaptureFixture, message: str) -> None:
    assert raw.is_closed_by_the_broker()
    (line,) = [record.getMessage() for record in caplog.records if "closing the connection" in record.msg]
    assert message in line
    assert "127.0.0.1:" in line


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "an HTTP request"),
        (struct.pack(">i", -1), "says that it has -1 bytes"),
        (struct.pack(">i", 0), "says that it has 0 bytes"),
        (struct.pack(">i", 2**31 - 1), "says that it has 2147483647 bytes"),
        (struct.pack(">ih", 17 * MIB, METADATA), f"says that it has {17 * MIB} bytes"),
        (struct.pack(">ihhih", 10, 999, 0, 1, -1), "API 999, version 0) is not offered"),
        (struct.pack(">ihhih", 10, -1, -1, 1, -1), "API -1, version -1) is not offered"),
        (struct.pack(">ihhih", 10, METADATA, 99, 1, -1), "API 3, version 99) is not offered"),
        (struct.pack(">ihhih", 10, PRODUCE, 2, 1, -1), "API 0, version 2) is not offered"),
        (struct.pack(">ihhih", 10, METADATA, 1, 1, 500), "a length of 500 bytes where only 0 are left"),
        (
            struct.pack(">ihhihi", 14, METADATA, 1, 1, -1, 2**31 - 1),
            "can't be read: an array of 2147483647 elements",
        ),
    ],
)
def test_bytes_that_are_not_the_protocol_close_their_connection_and_are_named_in_the_log(
    raw: Any, caplog: pytest.LogCaptureFixture, data: bytes, message: str
) -> None:
    raw.send(data)
    assert_refused(raw, caplog, message)


def test_tls_on_the_plain_port_is_named_in_the_log(raw: Any, caplog: pytest.LogCaptureFixture) -> None:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with pytest.raises((ssl.SSLError, ConnectionResetError)):
        context.wrap_socket(raw.socket)
    assert "TLS handshake; this port is plain text" in caplog.text


def test_frames_that_never_end_keep_nobody_else_waiting(
    raw_at: Callable[[str], Any], broker: Broker, kafka: Any
) -> None:
    for _ in range(5):
        raw_at(broker.bootstrap).send(struct.pack(">ih", 85 * MIB, PRODUCE) + b"x" * 1_000)
        raw_at(broker.bootstrap).send(struct.pack(">ih", 15 * MIB, METADATA))
    assert kafka.produce("orders", [b"meanwhile", b"x" * 900_000]) == [0, 1]


def test_a_frame_that_drips_in_too_slowly_closes_its_connection(
    raw_at: Callable[[str], Any], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "SWEEP_INTERVAL_S", 0.02)
    monkeypatch.setattr(client_connection, "FRAME_WAIT_S_MAX", 0.1)
    with Broker() as broker:
        slow, idle = raw_at(broker.bootstrap), raw_at(broker.bootstrap)
        slow.send(struct.pack(">ih", 50 * MIB, PRODUCE) + b"x" * 1_000)
        assert_refused(slow, caplog, "was not there as a whole")
        assert idle.request(METADATA, 1, topics=()).topics == ()


def test_large_frames_that_stand_still_delay_no_small_request_and_make_way_for_large_ones(
    tmp_path: Path,
    raw_at: Callable[[str], Any],
    kafka_at: Callable[[str], Any],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine, "SWEEP_INTERVAL_S", 0.02)
    monkeypatch.setattr(budget, "PACE_WINDOW_S", 0.2)
    config = BrokerConfig(
        listen=Address("127.0.0.1", 0),
        message_bytes_max=MIB,
        frame_bytes_max=2 * MIB,
        in_flight_bytes_max=4 * MIB,
    )
    with Broker(tmp_path / "narrow", config=config) as broker:
        kafka = kafka_at(broker.bootstrap)
        kafka.create_topic("orders")
        for _ in range(6):
            raw_at(broker.bootstrap).send(struct.pack(">ih", 2 * MIB, PRODUCE) + b"x" * 1_000_000)
        neighbour = raw_at(broker.bootstrap)
        assert [topic.name for topic in neighbour.request(METADATA, 1, topics=None).topics] == ["orders"]
        assert kafka.produce("orders", [b"x" * 900_000]) == [0]
        assert "came too slowly while others waited" in caplog.text


def test_a_client_with_an_endless_name_can_join_a_group(raw: Any, caplog: pytest.LogCaptureFixture) -> None:
    schemas: Any = kio.schema.join_group.v3.request
    body = raw.encode(
        schemas.JoinGroupRequest(
            group_id="g",
            session_timeout=dt.timedelta(seconds=6),
            rebalance_timeout=dt.timedelta(seconds=6),
            member_id="",
            protocol_type="consumer",
            protocols=(schemas.JoinGroupRequestProtocol(name="range", metadata=b""),),
        )
    )
    raw.send(raw.frame(11, 3, body, client_id="n" * 32_767))
    assert raw.receive(11, 3).error_code.name == "none"


def test_a_mistake_of_the_broker_in_one_request_ends_only_its_connection(
    raw: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setitem(APIS, METADATA, APIS[METADATA].handled_by(fail))
        raw.send(raw.request_frame(METADATA, 1, topics=None))
        assert raw.is_closed_by_the_broker()
    assert "in an unexpected way" in caplog.text
    assert "ZeroDivisionError" in caplog.text


def test_a_peer_that_hangs_up_in_mid_frame_leaves_nothing_behind(raw: Any, kafka: Any) -> None:
    raw.send(struct.pack(">ih", 50 * MIB, PRODUCE) + b"x" * 100_000)
    raw.close()
    assert kafka.produce("orders", [b"after"]) == [0]


@pytest.mark.parametrize("api_key", sorted(APIS))
def test_garbage_in_the_body_of_any_api_ends_in_an_answer_or_a_closed_connection(
    api_key: int, raw_at: Callable[[str], Any], broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    seeded = random.Random(api_key)
    api = APIS[api_key]
    for version in range(api.version_first, api.version_last + 1):
        for _ in range(3):
            client = raw_at(broker.bootstrap)
            body = seeded.randbytes(seeded.randrange(40))
            client.send(client.frame(api_key, version, body))
            if api_key in MAY_WAIT:
                # What is garbage to us may be a valid request that waits long.
                client.has_something_to_read()
            else:
                _ = client.is_closed_by_the_broker()
            client.close()
    assert "unexpected way" not in caplog.text


def resident_bytes(broker_process: Any) -> int:
    return int(psutil.Process(broker_process.pid).memory_info().rss)


def test_a_megabyte_of_noise_on_many_connections_costs_no_memory(
    raw_at: Callable[[str], Any], broker_process: Any
) -> None:
    seeded = random.Random(7)
    before = resident_bytes(broker_process)
    for _ in range(60):
        client = raw_at(broker_process.bootstrap)
        try:
            client.send(seeded.randbytes(MIB))
        except (BrokenPipeError, ConnectionResetError):
            continue
        assert client.is_closed_by_the_broker()
    assert resident_bytes(broker_process) - before < 30 * MIB


def test_connections_above_the_maximum_are_closed_at_once_and_room_is_given_back(
    tmp_path: Path, raw_at: Callable[[str], Any], wait_until: Callable[..., Any]
) -> None:
    config = BrokerConfig(listen=Address("127.0.0.1", 0), connection_count_max=2)
    with Broker(tmp_path / "few", config=config) as broker:
        first, second = raw_at(broker.bootstrap), raw_at(broker.bootstrap)
        for client in (first, second):
            assert client.request(METADATA, 1, topics=()).topics == ()
        assert raw_at(broker.bootstrap).is_closed_by_the_broker()
        first.close()

        def is_served() -> bool:
            client = raw_at(broker.bootstrap)
            try:
                return bool(client.request(METADATA, 1, topics=()).topics == ())
            except (EOFError, ConnectionError):
                return False

        wait_until(is_served, "a connection being taken again")


def test_more_bytes_in_flight_than_allowed_wait_instead_of_being_refused(
    tmp_path: Path, kafka_at: Callable[[str], Any]
) -> None:
    config = BrokerConfig(
        listen=Address("127.0.0.1", 0),
        message_bytes_max=MIB,
        frame_bytes_max=2 * MIB,
        in_flight_bytes_max=2 * MIB,
    )
    with Broker(tmp_path / "narrow", config=config) as broker:
        kafka = kafka_at(broker.bootstrap)
        kafka.create_topic("orders", 8)
        producers = [kafka.producer(linger_ms=0, batch_size=900_000) for _ in range(8)]
        for number, producer in enumerate(producers):
            for _ in range(10):
                producer.produce("orders", b"x" * 800_000, partition=number)
        assert [producer.flush(60) for producer in producers] == [0] * 8
        ends = [
            kafka.consumer().get_watermark_offsets(TopicPartition("orders", number), timeout=30)[1]
            for number in range(8)
        ]
        assert ends == [10] * 8


def test_a_client_that_never_reads_its_answers_does_not_make_the_broker_keep_them(
    raw_at: Callable[[str], Any], kafka_at: Callable[[str], Any], broker_process: Any
) -> None:
    raw, kafka = raw_at(broker_process.bootstrap), kafka_at(broker_process.bootstrap)
    kafka.create_topic("orders")
    kafka.produce("orders", [b"x" * 500_000] * 20)
    raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    frames = b"".join(_fetch_frame(raw) for _ in range(60))
    before = resident_bytes(broker_process)
    raw.send(frames)
    assert kafka.produce("orders", [b"meanwhile"]) == [20]
    # Sixty answers of ten megabytes each would be 600 MB.
    assert resident_bytes(broker_process) - before < 150 * MIB


def _fetch_frame(raw: Any) -> bytes:
    schemas: Any = kio.schema.fetch.v12.request
    partition = schemas.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=10_000_000)
    frame: bytes = raw.request_frame(
        FETCH,
        12,
        max_wait=dt.timedelta(0),
        min_bytes=1,
        topics=(schemas.FetchTopic(topic="orders", partitions=(partition,)),),
        forgotten_topics_data=(),
        rack_id="",
    )
    return frame


def test_an_endless_group_id_closes_its_connection_with_a_reason(
    raw: Any, caplog: pytest.LogCaptureFixture
) -> None:
    raw.send(
        raw.request_frame(
            8,
            8,
            group_id="g" * 40_000,
            generation_id_or_member_epoch=-1,
            member_id="",
            group_instance_id=None,
            topics=(),
        )
    )
    assert_refused(raw, caplog, "group_id has 40000 bytes; 32767 is the most")
