"""A byte stream is cut into frames however it comes, and what is too large or broken is refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands
from pamqp import frame as pamqp_frame
from pamqp.body import ContentBody
from pamqp.header import ContentHeader

from headrace.errors import QueueRefused
from headrace.queue.amqp.frames import (
    BODY,
    HEADER,
    HEARTBEAT_FRAME,
    METHOD,
    PUBLISH_INDEX,
    Deliveries,
    FrameReader,
    body_frames,
    confirm_frame,
    frame,
    get_ok_frame,
    header_frame,
    refusal_frame,
    return_frame,
)

FRAMES = st.lists(
    st.tuples(st.sampled_from((1, 2, 3)), st.integers(0, 65_535), st.binary(max_size=200)), max_size=8
)


@dataclass
class Content:
    exchange: str = "orders"
    routing_key: str = "new.ü"
    properties: bytes = b"\x80\x00\x0atext/plain"
    body_bytes: int = 5


def taken(reader: FrameReader) -> list[tuple[int, int, bytes]]:
    found = []
    while (each := reader.take_frame()) is not None:
        found.append(each)
    return found


def unmarshalled(data: bytes) -> list[object]:
    values: list[object] = []
    while data:
        size, channel, value = pamqp_frame.unmarshal(data)
        assert channel == 3
        values.append(value)
        data = data[size:]
    return values


@given(FRAMES, st.lists(st.integers(1, 50), min_size=1), st.booleans())
def test_frames_come_out_as_they_went_in_however_the_stream_is_split(
    frames: list[tuple[int, int, bytes]], cuts: list[int], takes_at_once: bool
) -> None:
    stream = b"".join(frame(*each) for each in frames)
    reader = FrameReader(4096)
    found: list[tuple[int, int, bytes]] = []
    position = turn = 0
    while position < len(stream):
        size = cuts[turn % len(cuts)]
        reader.receive(stream[position : position + size])
        position += size
        # Sometimes frames wait while more bytes come.
        if takes_at_once or turn % 3 == 0:
            found += taken(reader)
        turn += 1
    found += taken(reader)
    assert found == frames
    assert reader.buffered_bytes == 0


ARGUMENTS = st.sampled_from([b"\0\0\0\1q\0", b"\0\0\0\1r\0"])
PROPERTIES = st.sampled_from([b"\0\0", b"\x10\0\2"])
MESSAGES = st.lists(
    st.tuples(st.integers(1, 2), ARGUMENTS, PROPERTIES, st.binary(min_size=1, max_size=3)), max_size=12
)


@given(MESSAGES, st.lists(st.integers(1, 120), min_size=1))
def test_messages_come_out_as_they_went_in_whether_or_not_they_are_like_the_one_before(
    messages: list[tuple[int, bytes, bytes, bytes]], cuts: list[int]
) -> None:
    stream = b"".join(
        frame(METHOD, channel, PUBLISH_INDEX.to_bytes(4, "big") + arguments)
        + frame(HEADER, channel, b"\0\x3c\0\0" + len(body).to_bytes(8, "big") + properties)
        + frame(BODY, channel, body)
        for channel, arguments, properties, body in messages
    )
    reader = FrameReader(4096)
    found: list[tuple[int, bytes, bytes, bytes]] = []
    frames: list[tuple[int, int, bytes]] = []
    position = turn = 0
    while position < len(stream):
        size = cuts[turn % len(cuts)]
        reader.receive(stream[position : position + size])
        position, turn = position + size, turn + 1
        found += messages_of(reader, frames)
    assert found == messages


def messages_of(
    reader: FrameReader, frames: list[tuple[int, int, bytes]]
) -> Iterator[tuple[int, bytes, bytes, bytes]]:
    """Messages that are there whole, and those that came in pieces, whose frames are kept until then."""
    while True:
        if not frames and (message := reader.take_message(3)) is not None:
            yield message
            continue
        taken_frame = reader.take_frame()
        if taken_frame is None:
            return
        frames.append(taken_frame)
        if len(frames) == 3:
            (_, channel, method), (_, _, header), (_, _, body) = frames
            frames.clear()
            yield channel, method[4:], header[12:], body


def test_a_message_like_the_one_before_that_does_not_end_as_it_should_is_not_taken() -> None:
    front = frame(METHOD, 1, PUBLISH_INDEX.to_bytes(4, "big") + b"\0\0\0\1q\0") + frame(
        HEADER, 1, b"\0\x3c\0\0" + (2).to_bytes(8, "big") + b"\0\0"
    )
    reader = FrameReader(4096)
    reader.receive(front + frame(BODY, 1, b"ab") + front + frame(BODY, 1, b"cd")[:-1] + b"\xcd")
    assert reader.take_message(100) == (1, b"\0\0\0\1q\0", b"\0\0", b"ab")
    assert reader.take_message(100) is None
    reader.take_frame()
    reader.take_frame()
    with pytest.raises(QueueRefused, match="FRAME_ERROR"):
        reader.take_frame()


def test_bytes_that_are_no_frame_can_be_taken_first() -> None:
    reader = FrameReader(4096)
    reader.receive(b"AMQP")
    assert reader.take(8) is None
    reader.receive(b"\x00\x00\x09\x01" + HEARTBEAT_FRAME)
    assert reader.take(8) == b"AMQP\x00\x00\x09\x01"
    assert reader.take_frame() == (8, 0, b"")


def test_a_frame_that_is_too_large_is_refused_before_it_has_come() -> None:
    reader = FrameReader(4096)
    reader.receive(b"\x01\x00\x01\x00\x00\x0f\xf9")
    with pytest.raises(QueueRefused, match="4089 bytes; 4088 are the most") as refused:
        reader.take_frame()
    assert refused.value.reply_code == 501


def test_a_frame_of_exactly_the_largest_size_is_taken() -> None:
    reader = FrameReader(4096)
    reader.receive(frame(BODY, 1, b"x" * 4088))
    assert reader.take_frame() == (BODY, 1, b"x" * 4088)


@pytest.mark.parametrize("data", [b"\x01\x00\x01\x00\x00\x00\x01x\xcd", b"\x04\x00\x01\x00\x00\x00\x01x\xce"])
def test_a_frame_of_the_wrong_type_or_end_is_refused(data: bytes) -> None:
    reader = FrameReader(4096)
    reader.receive(data)
    with pytest.raises(QueueRefused, match="FRAME_ERROR"):
        reader.take_frame()


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["one", "two"]),
            st.booleans(),
            st.builds(
                Content,
                routing_key=st.sampled_from(["a", "b"]),
                properties=st.sampled_from([b"\0\0", b"\x10\0\1", b"\x10\0\2"]),
            ),
            st.sampled_from([b"", b"x", b"y", b"xx", b"x" * 5000]),
        ),
        max_size=8,
    )
)
def test_a_delivery_is_written_the_same_whatever_was_delivered_before(
    told: list[tuple[str, bool, Content, bytes]],
) -> None:
    deliveries = Deliveries(3, 4096)
    for number, (tag, is_redelivered, content, body) in enumerate(told):
        found = deliveries.pieces(tag, number, is_redelivered, content, body)
        alone = Deliveries(3, 4096).pieces(tag, number, is_redelivered, content, body)
        assert b"".join(found) == b"".join(alone)


def test_deliveries_are_what_clients_read() -> None:
    content = Content()
    deliveries = Deliveries(3, 4096)
    deliveries.pieces("tag", 6, False, content, b"before")
    method, header, body = unmarshalled(b"".join(deliveries.pieces("tag", 7, True, content, b"hello")))
    assert isinstance(method, commands.Basic.Deliver)
    assert dict(method) == {
        "consumer_tag": "tag",
        "delivery_tag": 7,
        "redelivered": True,
        "exchange": "orders",
        "routing_key": "new.ü",
    }
    assert isinstance(header, ContentHeader)
    assert (header.body_size, header.properties.content_type) == (5, "text/plain")
    assert isinstance(body, ContentBody)
    assert body.value == b"hello"


@pytest.mark.parametrize("size_bytes", [0, 4088, 4089, 20_000])
def test_deliveries_of_any_size_are_what_clients_read(size_bytes: int) -> None:
    sent = b"x" * size_bytes
    pieces = Deliveries(3, 4096).pieces("tag", 1, False, Content(), sent)
    method, header, *bodies = unmarshalled(b"".join(pieces))
    assert isinstance(method, commands.Basic.Deliver)
    assert isinstance(header, ContentHeader)
    assert header.body_size == size_bytes
    assert b"".join(body.value for body in bodies if isinstance(body, ContentBody)) == sent


def test_fetched_and_returned_messages_are_what_clients_read() -> None:
    content = Content()
    got, _ = unmarshalled(get_ok_frame(3, 9, False, content, 41) + header_frame(3, content))
    assert isinstance(got, commands.Basic.GetOk)
    assert (got.delivery_tag, got.redelivered, got.message_count) == (9, False, 41)
    (returned,) = unmarshalled(return_frame(3, 312, "NO_ROUTE", content))
    assert isinstance(returned, commands.Basic.Return)
    assert (returned.reply_code, returned.reply_text, returned.routing_key) == (312, "NO_ROUTE", "new.ü")


def test_confirms_are_what_publishers_read() -> None:
    (taken_one,) = unmarshalled(confirm_frame(3, 2**40, True))
    assert isinstance(taken_one, commands.Basic.Ack)
    assert (taken_one.delivery_tag, taken_one.multiple) == (2**40, True)
    (refused,) = unmarshalled(refusal_frame(3, 5, False))
    assert isinstance(refused, commands.Basic.Nack)
    assert (refused.delivery_tag, refused.multiple) == (5, False)


@given(st.binary(max_size=30_000))
def test_a_body_is_cut_into_frames_that_are_not_too_large(body: bytes) -> None:
    reader = FrameReader(4096)
    reader.receive(b"".join(body_frames(3, body, 4096)))
    pieces = taken(reader)
    assert b"".join(payload for _, _, payload in pieces) == body
    assert all(kind == BODY for kind, _, _ in pieces)


def test_a_method_frame_has_its_size_before_it() -> None:
    assert frame(METHOD, 3, b"ab") == b"\x01\x00\x03\x00\x00\x00\x02ab\xce"
