"""Headers come out of a message as they went in, and go into a copy as they came out."""

from __future__ import annotations

import struct
from datetime import UTC, datetime

import pytest
from pika.exceptions import InvalidFrameError
from pika.frame import Header
from pika.spec import BasicProperties

from headrace.queue.fields import join, read_table, split
from headrace.queue_clients.deaths import sent_back, with_death
from headrace.queue_clients.properties import ExactProperties, copied, read_header_frame

VALUES = {
    b"double": b"d" + struct.pack(">d", 1.5),
    b"float": b"f" + struct.pack(">f", 0.25),
    b"nan": b"d" + struct.pack(">d", float("nan")),
    b"octet": b"b\xff",
    b"short": b"s" + struct.pack(">h", -3),
    b"unsigned": b"i" + struct.pack(">I", 2**32 - 1),
    b"long": b"l" + struct.pack(">q", 5),
    b"decimal": b"D\x02" + struct.pack(">i", 150),
    b"at": b"T" + struct.pack(">Q", 1_700_000_000),
    b"void": b"V",
    b"no text": b"S\x00\x00\x00\x01\xff",
    b"nested": b"F\x00\x00\x00\x0b\x01n" + b"d" + struct.pack(">d", 2.5),
    b"\xff": b"t\x01",
}
FAR = b"T" + struct.pack(">Q", 2**62)
"""A time that no calendar knows."""


def _received(table: bytes, **values: object) -> ExactProperties:
    """Properties as they come over the wire, after all others of them."""
    sent = ExactProperties(table=table, headers={}, **values)
    frame = Header(7, 300, sent).marshal()
    for size in range(len(frame)):
        assert read_header_frame(frame[:size]) in ((0, None), None)
    read = read_header_frame(frame + b"more")
    assert read is not None
    assert read[0] == len(frame)
    header = read[1]
    assert header is not None
    assert (header.channel_number, header.body_size) == (7, 300)
    properties: ExactProperties = header.properties
    return properties


def test_headers_of_all_types_are_read() -> None:
    received = _received(join(VALUES.items()), content_type="a/b", content_encoding="gzip", message_id="m")
    assert received.headers["double"] == 1.5
    assert received.headers["float"] == 0.25
    assert received.headers["nested"] == {"n": 2.5}
    assert received.headers["at"] == datetime.fromtimestamp(1_700_000_000, UTC)
    assert (received.content_type, received.content_encoding, received.message_id) == ("a/b", "gzip", "m")


def test_a_copy_has_the_headers_that_were_not_changed_to_the_byte() -> None:
    received = _received(join(VALUES.items()), user_id="ann", message_id="m", priority=4)
    back = copied(received, headers=sent_back(received.headers))
    died_at = datetime.fromtimestamp(1_700_000_000, UTC)
    death = {"queue": "q", "reason": "r", "exchange": "", "routing_key": "q", "cause": "c"}
    dead = copied(received, headers=with_death(received.headers, died_at=died_at, **death))
    for copy in (back, dead):
        again = _received(copy.table or b"", message_id="m", priority=4)
        assert again == copy
        fields = dict(split(again.table or b""))
        assert {name: fields[name] for name in VALUES} == VALUES
        assert (again.message_id, again.priority, again.user_id) == ("m", 4, None)
    assert back.headers["x-headrace-redriven"] == 1
    assert read_table(dead.table or b"")["x-headrace-cause"] == "c"


def test_headers_that_are_not_understood_are_handed_on() -> None:
    received = _received(join([(b"a", b"d" + struct.pack(">d", 1.5)), (b"far", FAR), (b"odd", b"?")]))
    assert received.headers == {}
    copy = copied(received, headers=sent_back(received.headers))
    assert copy.table is not None
    assert copy.table.endswith((received.table or b"")[4:])
    assert struct.unpack_from(">I", copy.table)[0] == len(copy.table) - 4


def test_properties_are_compared_by_what_they_say() -> None:
    plain = BasicProperties(headers={"a": "x", "b": 5}, message_id="m")
    read = ExactProperties().decode(b"".join(plain.encode()))
    assert plain == read
    assert read != BasicProperties(headers={"a": "x", "b": 6}, message_id="m")
    assert ExactProperties().decode(b"".join(BasicProperties(type="t").encode())) == BasicProperties(type="t")


def test_a_frame_that_does_not_end_as_it_should_is_refused_and_others_are_left_to_pika() -> None:
    frame = Header(1, 0, BasicProperties(type="t")).marshal()
    with pytest.raises(InvalidFrameError):
        read_header_frame(frame[:-1] + b"\x00")
    assert read_header_frame(b"\x01" + frame[1:]) is None
    assert read_header_frame(b"AMQP\x00\x00\x09\x01") is None
