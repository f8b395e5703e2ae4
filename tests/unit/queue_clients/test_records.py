"""Messages as records, and records as messages."""

from __future__ import annotations

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pika.spec import BasicProperties

from headrace.errors import BridgeFailed
from headrace.queue_clients.bridge.records import TopicRecord, message_id_of, message_of, record_of
from headrace.testing.deliveries import delivery


def _record(**changes: object) -> TopicRecord:
    given = {"topic": "t", "key": b"k", "value": b"v", "partition": 3, "offset": 7, "timestamp_ms": 1500}
    return TopicRecord(**{**given, **changes})  # type: ignore[arg-type]


def test_a_message_becomes_a_record_with_all_that_it_said_of_itself() -> None:
    message = delivery(
        b"body",
        exchange="shop",
        routing_key="order.new",
        headers={"text": "ä", "number": 5, "bytes": b"\xff", "table": {"at": datetime(2026, 1, 1)}},  # noqa: DTZ001
        message_id="m1",
        timestamp=1_700_000_000,
        content_type="application/json",
    )
    record = record_of(message, "orders", "routing-key")
    headers = dict(record.headers)
    assert (record.topic, record.key, record.value) == ("orders", b"order.new", b"body")
    assert record.timestamp_ms == 1_700_000_000_000
    assert headers["text"] == "ä".encode()
    assert (headers["number"], headers["bytes"]) == (b"5", b"\xff")
    assert headers["table"] == b'{"at": "2026-01-01T00:00:00+00:00"}'
    assert headers["amqp.message_id"] == b"m1"
    assert headers["amqp.exchange"] == b"shop"
    assert headers["amqp.routing_key"] == b"order.new"
    assert headers["amqp.content_type"] == b"application/json"


def test_the_key_of_a_record_is_what_was_chosen() -> None:
    message = delivery(message_id="m1", routing_key="rk")
    assert record_of(message, "t", "message-id").key == b"m1"
    assert record_of(message, "t", "routing-key").key == b"rk"
    assert record_of(message, "t", "none").key is None
    assert record_of(delivery(), "t", "message-id").key is None


def test_a_record_becomes_a_persistent_message_that_says_where_it_was() -> None:
    message = message_of(_record(headers=(("h", b"x"), ("raw", b"\xff"), ("empty", None))), "queue")
    properties = message.properties
    assert (message.body, message.routing_key, properties.delivery_mode) == (b"v", "queue", 2)
    assert properties.message_id == "t-3-7"
    assert properties.timestamp == 1
    assert properties.headers == {
        "h": "x",
        "raw": b"\xff",
        "empty": "",
        "kafka.topic": "t",
        "kafka.partition": 3,
        "kafka.offset": 7,
        "kafka.key": "k",
    }


def test_a_tombstone_is_an_empty_message_that_says_so() -> None:
    message = message_of(_record(value=None), "q")
    assert message.body == b""
    assert message.properties.headers["kafka.tombstone"] is True


def test_what_was_a_message_gets_its_type_back_and_a_new_id() -> None:
    record = record_of(delivery(b"x", message_id="m1", content_type="text/plain", type="order"), "t", "none")
    back = message_of(_record(headers=record.headers), "q").properties
    assert (back.content_type, back.type, back.message_id) == ("text/plain", "order", "t-3-7")
    assert not [name for name in back.headers if name.startswith("amqp.")]


@given(st.text(alphabet="abc", min_size=1, max_size=249), st.integers(0, 2**31), st.integers(0, 2**63 - 1))
def test_the_id_of_a_records_message_fits_and_is_always_the_same(
    topic: str, partition: int, offset: int
) -> None:
    record = _record(topic=topic, partition=partition, offset=offset)
    assert len(message_id_of(record)) <= 255
    assert message_id_of(record) == message_id_of(record)


def test_without_a_routing_key_it_is_the_records_key() -> None:
    assert message_of(_record(key=b"order.new"), None).routing_key == "order.new"
    assert message_of(_record(key=None), None).routing_key == ""


@pytest.mark.parametrize("key", [b"\xff", b"x" * 256])
def test_a_key_that_can_be_no_routing_key_stops_the_bridge_with_its_place(key: bytes) -> None:
    with pytest.raises(BridgeFailed, match=r"record 7 of t-3.*--routing-key"):
        message_of(_record(key=key), None)


@given(
    st.dictionaries(st.text(max_size=300), st.binary(max_size=20), max_size=5),
    st.none() | st.binary(max_size=300),
    st.none() | st.binary(max_size=50),
)
def test_whatever_a_record_holds_becomes_a_message_that_can_be_sent(
    headers: dict[str, bytes], key: bytes | None, value: bytes | None
) -> None:
    message = message_of(_record(headers=tuple(headers.items()), key=key, value=value), "q")
    encoded = b"".join(message.properties.encode())
    read = BasicProperties()
    read.decode(encoded)
    assert read.message_id == "t-3-7"
