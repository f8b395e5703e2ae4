"""A message as a record, and a record as a message. No I/O.

    message                              record
    body                            <->  value; a record without one becomes an empty body
    routing key, or message id       ->  key
    headers                         <->  headers: texts as they are, all else as JSON
    properties                       ->  headers `amqp.<name>`, exchange and routing key among them
    timestamp                       <->  timestamp
    message id `<topic>-<partition>-<offset>`  <-  place, which is in the headers `kafka.<name>` as well

The id of a message that was a record is always the same, however often it is handed over: workers tell by it
what they have done already.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from pika.spec import BasicProperties

from headrace.config import BridgeKey
from headrace.errors import BridgeFailed
from headrace.queue_clients.delivery import PROPERTY_NAMES, Delivery

PERSISTENT: Final = 2
SHORT_BYTES_MAX: Final = 255
OF_AMQP: Final = "amqp."
OF_KAFKA: Final = "kafka."
_SECOND_MS: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRecord:
    """A record, and where it is or goes."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None
    partition: int = -1
    offset: int = -1

    @property
    def place(self) -> str:
        """Where it is, which no other record has."""
        return f"{self.topic}-{self.partition}-{self.offset}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingMessage:
    """A message to be published."""

    body: bytes
    properties: BasicProperties
    routing_key: str


def record_of(delivery: Delivery, topic: str, key: BridgeKey) -> TopicRecord:
    """What a message becomes in a topic."""
    headers = [(str(name), _bytes(value)) for name, value in delivery.headers.items()]
    headers += [
        (OF_AMQP + name, _bytes(value))
        for name in PROPERTY_NAMES
        if name != "headers" and (value := getattr(delivery.properties, name)) is not None
    ]
    headers += [(OF_AMQP + "exchange", _bytes(delivery.exchange))]
    headers += [(OF_AMQP + "routing_key", _bytes(delivery.routing_key))]
    timestamp_s = delivery.properties.timestamp
    return TopicRecord(
        topic=topic,
        key=_key(delivery, key),
        value=delivery.body,
        headers=tuple(headers),
        timestamp_ms=timestamp_s * _SECOND_MS if isinstance(timestamp_s, int) and timestamp_s > 0 else None,
    )


def message_of(record: TopicRecord, routing_key: str | None) -> OutgoingMessage:
    """What a record becomes in a queue. Without a routing key it is the record's key."""
    headers: dict[str, Any] = {
        _short(name): _text_or_bytes(value or b"")
        for name, value in record.headers
        if not name.startswith(OF_AMQP)
    }
    headers |= {
        OF_KAFKA + "topic": record.topic,
        OF_KAFKA + "partition": record.partition,
        OF_KAFKA + "offset": record.offset,
    }
    if record.key is not None:
        headers[OF_KAFKA + "key"] = _text_or_bytes(record.key)
    if record.value is None:
        headers[OF_KAFKA + "tombstone"] = True
    properties = BasicProperties(
        headers=headers,
        delivery_mode=PERSISTENT,
        message_id=message_id_of(record),
        timestamp=None if record.timestamp_ms is None else record.timestamp_ms // _SECOND_MS,
        content_type=_header(record.headers, OF_AMQP + "content_type", "content-type"),
        content_encoding=_header(record.headers, OF_AMQP + "content_encoding"),
        type=_header(record.headers, OF_AMQP + "type"),
        correlation_id=_header(record.headers, OF_AMQP + "correlation_id"),
    )
    key = _routing_key(record) if routing_key is None else routing_key
    return OutgoingMessage(body=record.value or b"", properties=properties, routing_key=key)


def message_id_of(record: TopicRecord) -> str:
    """The id of a record's message."""
    place = record.place
    # A topic's name may be so long that the id has no room; then a hash stands for it.
    return place if len(place) <= SHORT_BYTES_MAX else hashlib.sha256(place.encode()).hexdigest()


def _key(delivery: Delivery, key: BridgeKey) -> bytes | None:
    if key == "message-id":
        return None if delivery.message_id is None else delivery.message_id.encode()
    return delivery.routing_key.encode() if key == "routing-key" else None


def _routing_key(record: TopicRecord) -> str:
    try:
        key = (record.key or b"").decode()
    except UnicodeDecodeError as error:
        raise _no_routing_key(record, "is not text") from error
    if len(key.encode()) > SHORT_BYTES_MAX:
        raise _no_routing_key(record, f"is longer than {SHORT_BYTES_MAX} bytes")
    return key


def _no_routing_key(record: TopicRecord, why: str) -> BridgeFailed:
    return BridgeFailed(
        f"record {record.offset} of {record.topic}-{record.partition} has a key that {why}, which can't be a "
        "routing key: name one with --routing-key"
    )


def _header(headers: Sequence[tuple[str, bytes | None]], *names: str) -> str | None:
    for name, value in headers:
        if name in names and value:
            return _short(value.decode(errors="replace"))
    return None


def _short(text: str) -> str:
    return text.encode()[:SHORT_BYTES_MAX].decode(errors="ignore")


def _text_or_bytes(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def _bytes(value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode(errors="surrogateescape")
    return json.dumps(value, default=_plain, ensure_ascii=False).encode()


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.replace(tzinfo=value.tzinfo or UTC).isoformat()
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
