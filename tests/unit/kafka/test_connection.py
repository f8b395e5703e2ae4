"""Frames out of a byte stream, and answers in the order of their requests."""

from __future__ import annotations

import ssl
import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.config import MIB
from headrace.errors import ProtocolError
from headrace.kafka.connection import (
    FRAME_BYTES_MIN,
    GATHERED_BYTES_MAX,
    SMALL_REQUEST_BYTES_MAX,
    AnswerQueue,
    FrameReader,
    is_produce,
)

PRODUCE = b"\0\0"
METADATA = b"\0\x03"

frames = st.lists(st.binary(min_size=FRAME_BYTES_MIN, max_size=300), max_size=8)


def next_frame(reader: FrameReader) -> bytes | None:
    size_bytes = reader.next_size()
    return None if size_bytes is None else reader.take_frame(size_bytes)


def framed(frame: bytes) -> bytes:
    return struct.pack(">i", len(frame)) + frame


def read_all(reader: FrameReader) -> list[bytes]:
    found = []
    while (frame := next_frame(reader)) is not None:
        found.append(frame)
    return found


def client_hello() -> bytes:
    outgoing = ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="broker")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


@given(frames, st.data())
def test_any_chunking_of_a_stream_gives_the_same_frames(sent: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(map(framed, sent))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    reader = FrameReader(MIB)
    received: list[bytes] = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        if start < end:
            reader.receive(stream[start:end])
        received += read_all(reader)
    assert received == sent
    assert reader.buffered_bytes == 0


@given(st.lists(st.integers(FRAME_BYTES_MIN, 4 * GATHERED_BYTES_MAX), max_size=8), st.data())
def test_any_mixture_of_large_and_small_pieces_gives_the_same_frames(
    sizes: list[int], data: st.DataObject
) -> None:
    sent = [bytes([number]) * size for number, size in enumerate(sizes)]
    stream = b"".join(map(framed, sent))
    lengths = st.integers(1, 8) | st.integers(GATHERED_BYTES_MAX - 1, 3 * GATHERED_BYTES_MAX)
    reader = FrameReader(MIB)
    received: list[bytes] = []
    start = 0
    while start < len(stream):
        end = start + data.draw(lengths)
        reader.receive(stream[start:end])
        received += read_all(reader)
        start = end
    assert received == sent
    assert reader.buffered_bytes == 0


def test_a_large_frame_that_drips_byte_by_byte_is_not_kept_as_an_object_for_each_byte() -> None:
    reader = FrameReader(MIB)
    drops = [bytes([number % 256]) for number in range(100_000)]
    reader.receive(struct.pack(">i", len(drops) + len(PRODUCE)) + PRODUCE)
    tracemalloc.start()
    try:
        for drop in drops:
            reader.receive(drop)
            assert reader.next_size() == len(drops) + len(PRODUCE)
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept_bytes < 3 * len(drops)
    assert next_frame(reader) == PRODUCE + b"".join(drops)


def test_what_was_taken_is_not_kept_while_a_client_sends_without_a_pause() -> None:
    frame = framed(PRODUCE + bytes(1_000))
    # Pieces whose ends never meet those of frames.
    stream = frame * 2_000
    reader = FrameReader(MIB)
    received = 0
    tracemalloc.start()
    try:
        for start in range(0, len(stream) - 999, 999):
            reader.receive(stream[start : start + 999])
            received += len(read_all(reader))
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert received > 1_900
    assert kept_bytes < 20 * len(frame)


@given(frames)
def test_a_stream_that_drips_byte_by_byte_gives_the_same_frames(sent: list[bytes]) -> None:
    reader = FrameReader(MIB)
    received: list[bytes] = []
    for byte in b"".join(map(framed, sent)):
        reader.receive(bytes([byte]))
        received += read_all(reader)
    assert received == sent


@given(st.lists(st.binary(min_size=1, max_size=60), max_size=30))
def test_random_bytes_give_frames_or_a_protocol_error_and_are_never_kept_past_the_limit(
    chunks: list[bytes],
) -> None:
    limit = 200
    reader = FrameReader(limit)
    try:
        for chunk in chunks:
            reader.receive(chunk)
            for frame in read_all(reader):
                assert FRAME_BYTES_MIN <= len(frame) <= limit
            assert reader.buffered_bytes < 4 + limit
    except ProtocolError:
        return


def test_the_size_is_known_before_the_frame_is_there() -> None:
    reader = FrameReader(MIB)
    reader.receive(struct.pack(">i", 5000) + METADATA)
    assert reader.next_size() == 5000
    assert next_frame(reader) is None


@pytest.mark.parametrize("size", [-1, -(2**31), 0, FRAME_BYTES_MIN - 1, MIB + 1, 2**31 - 1])
def test_a_size_out_of_bounds_is_refused_when_its_four_bytes_are_there(size: int) -> None:
    reader = FrameReader(MIB)
    reader.receive(struct.pack(">i", size))
    with pytest.raises(ProtocolError, match=f"says that it has {size} bytes"):
        reader.next_size()


def test_a_large_request_is_accepted_for_produce_only() -> None:
    size = struct.pack(">i", SMALL_REQUEST_BYTES_MAX + 1)
    producing, asking = FrameReader(100 * MIB), FrameReader(100 * MIB)
    producing.receive(size + PRODUCE)
    assert producing.next_size() == SMALL_REQUEST_BYTES_MAX + 1
    asking.receive(size + METADATA)
    with pytest.raises(ProtocolError, match=f"{SMALL_REQUEST_BYTES_MAX} are accepted"):
        asking.next_size()


@pytest.mark.parametrize(
    ("first_bytes", "message"),
    [
        (b"GET / HTTP/1.1\r\n", "an HTTP request"),
        (b"POST /topics HTTP/1.1\r\n", "an HTTP request"),
        (b"PRI * HTTP/2.0\r\n", "an HTTP/2 connection"),
        (b"AMQP\x00\x00\x09\x01", "an AMQP connection"),
        (b"SSH-2.0-client", "an SSH connection"),
    ],
)
def test_another_protocol_is_called_by_its_name(first_bytes: bytes, message: str) -> None:
    reader = FrameReader(100 * MIB)
    reader.receive(first_bytes)
    with pytest.raises(ProtocolError, match=message):
        next_frame(reader)


def test_a_tls_hello_is_called_by_its_name_and_says_what_to_set() -> None:
    reader = FrameReader(100 * MIB)
    reader.receive(client_hello())
    with pytest.raises(ProtocolError, match=r"TLS handshake.*security\.protocol=PLAINTEXT"):
        next_frame(reader)


def test_a_produce_is_known_by_its_first_two_bytes() -> None:
    assert is_produce(PRODUCE + b"\0\x0b")
    assert not is_produce(METADATA + b"\0\0")


@given(st.permutations(range(6)))
def test_answers_leave_in_the_order_of_their_requests(order: list[int]) -> None:
    queue = AnswerQueue()
    slots = [queue.open_slot(is_produce=True) for _ in order]
    sent = [parts for index in order for parts in queue.fill(slots[index], [bytes([index])])]
    assert sent == [[bytes([index])] for index in range(6)]
    assert len(queue) == 0


def test_a_request_without_an_answer_holds_up_nobody() -> None:
    queue = AnswerQueue()
    silent, loud = queue.open_slot(is_produce=True), queue.open_slot(is_produce=True)
    assert queue.fill(loud, [b"x"]) == []
    assert queue.fill(silent, None) == [[b"x"]]


def test_produces_may_overlap_and_everything_else_waits_for_what_is_before_it() -> None:
    queue = AnswerQueue()
    assert queue.may_start(is_produce=False)
    first = queue.open_slot(is_produce=True)
    assert queue.may_start(is_produce=True)
    assert not queue.may_start(is_produce=False)
    queue.fill(first, [b""])
    fetch = queue.open_slot(is_produce=False)
    assert not queue.may_start(is_produce=True)
    queue.fill(fetch, [b""])
    assert queue.may_start(is_produce=True)
