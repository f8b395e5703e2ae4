"""What lies in the journal of the queues.

The journal is one partition of the log. Each batch holds one record, whose value is what was done between two
flushes: operations one after the other. A batch is there whole or not at all, and so is what was done.

    P  publish     flags, number of queues, lengths, time; for each queue: id, position, expiry, delivery
                   count, and whether it is stored there; then exchange, routing key, properties and body
    M  moved       the same for a message that was copied from the journal's beginning, which is about to go;
                   only queues that still have it are named
    S  settled     a queue's message is gone: queue id, position
    B  came back   a queue's message came back: queue id, position, delivery count
    H  horizon     messages of a queue below the position may have been delivered: queue id, position
    X  purged      messages of a queue below the position are gone but for some: queue id, position, those
    T  topology    a field table, see topology.py

A message's location is the offset of its batch, and where in the value of that batch its operation begins.
A publish whose queues are all not stored (its messages are transient, and were written to save memory) means
nothing after a restart.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from struct import error as struct_error
from typing import TYPE_CHECKING, Final, NamedTuple

from headrace.errors import CorruptBatch
from headrace.log.batch import HEADER_BYTES, check_crc, read_header
from headrace.log.record import read_varint, write_varint

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.queue.message import Entry, Message

PUBLISH: Final = ord("P")
MOVED: Final = ord("M")
SETTLED: Final = ord("S")
CAME_BACK: Final = ord("B")
HORIZON: Final = ord("H")
PURGED: Final = ord("X")
TOPOLOGY: Final = ord("T")

PUBLISH_HEAD: Final = Struct(">BBHBHIIq")
"""Kind, priority, number of queues; bytes of exchange, routing key, properties and body; when published."""
PLACE: Final = Struct(">IQqHB")
"""Queue id, position, expiry, delivery count, whether it is stored."""
ONE_PLACE_HEAD: Final = Struct(">BBHBHIIqIQqHB")
"""Both, for the message of one queue."""
AT: Final = Struct(">BIQ")
"""Kind, queue id, position."""
COUNTED: Final = Struct(">BIQH")
PURGED_HEAD: Final = Struct(">BIQI")
POSITION: Final = Struct(">Q")
TOPOLOGY_HEAD: Final = Struct(">BI")

POSITION_BITS: Final = 24
VALUE_POSITION_MAX: Final = (1 << POSITION_BITS) - 1
DELIVERY_COUNT_MAX: Final = 0xFFFF
NAMES_MAX: Final = 1024
"""How many pairs of an exchange and a routing key are remembered as they are written."""


class Place(NamedTuple):
    """A message's place in one queue, as it is written."""

    queue_id: int
    position: int
    expires_ms: int
    delivery_count: int
    is_stored: int


class Published(NamedTuple):
    """A message as it is written; where its parts lie in the value of its batch."""

    kind: int
    priority: int
    published_ms: int
    places: tuple[Place, ...]
    names_at: int
    exchange_bytes: int
    routing_key_bytes: int
    properties_bytes: int
    body_bytes: int
    end: int


def location(offset: int, position: int) -> int:
    """A place in the journal as one number."""
    return offset << POSITION_BITS | position


def write_published(kind: int, message: Message, entries: Sequence[Entry]) -> tuple[bytes, bytes, int]:
    """What comes before the body, the body, and how many bytes they have together."""
    names, exchange_bytes, routing_key_bytes = _written_names(message.exchange, message.routing_key)
    properties, body = message.properties, message.body
    assert body is not None
    if len(entries) == 1:
        entry = entries[0]
        head = ONE_PLACE_HEAD.pack(
            kind,
            message.priority,
            1,
            exchange_bytes,
            routing_key_bytes,
            len(properties),
            len(body),
            message.published_ms,
            entry.queue.queue_id,
            entry.position,
            entry.expires_ms,
            min(entry.delivery_count, DELIVERY_COUNT_MAX),
            entry.is_stored,
        )
    else:
        lengths = (exchange_bytes, routing_key_bytes, len(properties), len(body))
        head = PUBLISH_HEAD.pack(
            kind, message.priority, len(entries), *lengths, message.published_ms
        ) + b"".join(
            PLACE.pack(
                entry.queue.queue_id,
                entry.position,
                entry.expires_ms,
                min(entry.delivery_count, DELIVERY_COUNT_MAX),
                entry.is_stored,
            )
            for entry in entries
        )
    front = b"".join((head, names, properties))
    return front, body, len(front) + len(body)


@lru_cache(NAMES_MAX)
def _written_names(exchange: str, routing_key: str) -> tuple[bytes, int, int]:
    """Both names one after the other, and how many bytes each of them has."""
    first = exchange.encode("utf-8", "surrogateescape")
    second = routing_key.encode("utf-8", "surrogateescape")
    return first + second, len(first), len(second)


def write_moved(value: bytes, published: Published, places: Sequence[Place]) -> bytes:
    """A message copied as it is, with the places that it still has."""
    head = PUBLISH_HEAD.pack(
        MOVED,
        published.priority,
        len(places),
        published.exchange_bytes,
        published.routing_key_bytes,
        published.properties_bytes,
        published.body_bytes,
        published.published_ms,
    )
    return head + b"".join(PLACE.pack(*place) for place in places) + value[published.names_at : published.end]


def read_published(value: bytes, position: int) -> Published:
    """Read a message's operation. Raises CorruptBatch."""
    try:
        kind, priority, count, exchange, key, properties, body, published_ms = PUBLISH_HEAD.unpack_from(
            value, position
        )
        at = position + PUBLISH_HEAD.size
        places = tuple(Place(*PLACE.unpack_from(value, at + index * PLACE.size)) for index in range(count))
    except struct_error as error:
        raise CorruptBatch(f"a message in the queues' journal can't be read: {error}") from error
    names_at = at + count * PLACE.size
    end = names_at + exchange + key + properties + body
    if kind not in {PUBLISH, MOVED} or end > len(value):
        raise CorruptBatch(f"the queues' journal has no message at byte {position} of a batch")
    return Published(kind, priority, published_ms, places, names_at, exchange, key, properties, body, end)


def fill(message: Message, value: bytes, published: Published) -> None:
    """Give a message what was written of it."""
    at = published.names_at
    message.exchange = value[at : at + published.exchange_bytes].decode("utf-8", "surrogateescape")
    at += published.exchange_bytes
    message.routing_key = value[at : at + published.routing_key_bytes].decode("utf-8", "surrogateescape")
    at += published.routing_key_bytes
    message.properties = value[at : at + published.properties_bytes]
    message.body = value[at + published.properties_bytes : published.end]
    message.body_bytes = published.body_bytes
    message.priority = published.priority
    message.published_ms = published.published_ms


def write_record(value: Sequence[bytes], size_bytes: int) -> bytes:
    """The records of a batch that holds one value."""
    tail = bytearray()
    write_varint(tail, size_bytes)
    body_bytes = 4 + len(tail) + size_bytes + 1
    front = bytearray()
    write_varint(front, body_bytes)
    # No attributes, no difference in time or offset, no key; after the value, no headers.
    front += b"\x00\x00\x00\x01"
    return b"".join((front, tail, *value, b"\x00"))


def value_of(batch: bytes) -> bytes:
    """The value of a batch's one record. Raises CorruptBatch."""
    _, position = read_varint(batch, HEADER_BYTES)
    size_bytes, position = read_varint(batch, position + 4)
    if size_bytes < 0 or position + size_bytes > len(batch):
        raise CorruptBatch("a batch of the queues' journal does not hold one value")
    return batch[position : position + size_bytes]


def split_values(batches: bytes, offset: int) -> Iterator[tuple[int, bytes]]:
    """The offsets and values of batches that lie one after the other, the first of them at an offset.

    All of them are checked: a batch that is not what was written, or not there, raises CorruptBatch.
    """
    position = 0
    while True:
        try:
            header = read_header(batches, position)
            if header.base_offset != offset:
                raise CorruptBatch(  # noqa: TRY301  # Said with its place below.
                    f"the batch that lies there has offset {header.base_offset}"
                )
            end = position + header.size_bytes
            batch = batches[position:end]
            check_crc(header, memoryview(batch))
            value = value_of(batch)
        except CorruptBatch as error:
            raise CorruptBatch(f"the queues' journal is damaged at offset {offset}: {error}") from error
        yield offset, value
        position, offset = end, offset + 1
        if position >= len(batches):
            return
