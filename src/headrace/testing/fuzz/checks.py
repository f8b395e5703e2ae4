"""What must hold whatever bytes come. Each check raises AssertionError, or whatever went wrong."""

from __future__ import annotations

import tracemalloc
from contextlib import suppress
from pathlib import Path
from random import Random
from struct import Struct
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from headrace.config import KIB, MIB, BrokerConfig
from headrace.errors import ProtocolError
from headrace.kafka.api import APIS
from headrace.kafka.codec.frame import read_request_header, request_reader
from headrace.kafka.connection import FRAME_BYTES_MIN, FrameReader
from headrace.kafka.messages.produce import ProduceRequest
from headrace.testing.fuzz.damage import HUGE_LENGTHS, damage
from headrace.testing.fuzz.values import OddRequests
from headrace.testing.simulation.bench import SimulatedBench

if TYPE_CHECKING:
    from collections.abc import Iterator

HEADER_BYTES: Final = 11
"""API, version, correlation id, no client id and perhaps tags: left whole, so that a decoder is met."""
FRAME_BYTES_MAX: Final = 1 * MIB
BYTES_PER_BYTE_MAX: Final = 400
"""How much memory a byte of a request may take when it is decoded: objects are larger than what they hold."""
_SIZE: Final = Struct(">i")


def all_versions() -> Iterator[tuple[int, int]]:
    """Every version of every API on offer."""
    for api in APIS.values():
        for version in range(api.version_first, api.version_last + 1):
            yield api.key, version


def check_frame_reader(seed: int) -> None:
    """Frames come out as they went in, however the stream is split; whatever is none is refused at once."""
    random = Random(seed)  # noqa: S311  # cases, not secrets
    frames = [
        random.randbytes(random.choice((FRAME_BYTES_MIN, 11, 100, 5_000)))
        for _ in range(random.randint(0, 5))
    ]
    stream = b"".join(_SIZE.pack(len(frame)) + frame for frame in frames)
    rubbish = b"" if random.random() < 0.5 else random.choice((*HUGE_LENGTHS[:3], b"\0\0\0\x01")) + bytes(4)
    reader = FrameReader(FRAME_BYTES_MAX)
    read: list[bytes] = []
    is_refused = False
    for piece in _in_pieces(stream + rubbish, random):
        reader.receive(piece)
        try:
            for frame in _frames(reader):
                read.append(frame)  # noqa: PERF402  # those before one that is refused count, too
        except ProtocolError:
            is_refused = True
            break
        assert reader.buffered_bytes <= FRAME_BYTES_MAX + _SIZE.size
    assert read == frames
    assert is_refused == bool(rubbish)


def check_garbage(seed: int) -> None:
    """Random bytes are frames of allowed sizes, or refused."""
    random = Random(seed)  # noqa: S311  # cases, not secrets
    reader = FrameReader(FRAME_BYTES_MAX)
    try:
        for piece in _in_pieces(random.randbytes(random.randint(0, 300)), random):
            reader.receive(piece)
            for frame in _frames(reader):
                assert FRAME_BYTES_MIN <= len(frame) <= FRAME_BYTES_MAX
                decode(frame)
    except ProtocolError:
        pass


def check_decoder(api_key: int, version: int, seed: int) -> None:
    """A request with odd values can be read; with damage it is read or refused, and nothing else happens."""
    random = Random(f"{seed}/{api_key}/{version}")  # noqa: S311  # cases, not secrets
    frame = OddRequests(random).frame(api_key, version)
    decode(frame)
    damaged = [damage(frame, random, after=HEADER_BYTES) for _ in range(4)]
    for each in (*damaged, frame[:HEADER_BYTES] + random.randbytes(random.randint(0, 100))):
        with suppress(ProtocolError):
            decode(each)


def check_memory(api_key: int, version: int, seed: int) -> None:
    """However a request lies about its lengths, decoding it takes memory in proportion to its size."""
    random = Random(f"{seed}/{api_key}/{version}")  # noqa: S311  # cases, not secrets
    frame = OddRequests(random).frame(api_key, version)
    filling = random.choice((b"\0", b"\1", b"\2", b"\x7f", b"\xff"))
    frame = damage(frame, random, after=HEADER_BYTES) + filling * random.choice((0, 50_000))
    # All threads are counted, and what is loaded when it is first needed: neither comes up each time.
    peak_bytes = min(_peak_bytes(frame) for _ in range(2))
    allowed_bytes = len(frame) * BYTES_PER_BYTE_MAX + 256 * KIB
    assert peak_bytes <= allowed_bytes, f"{len(frame)} bytes took {peak_bytes} bytes of memory to decode"


def _peak_bytes(frame: bytes) -> int:
    tracemalloc.start()
    try:
        decode(frame)
    except ProtocolError:
        pass
    finally:
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return peak_bytes


def check_handlers(seed: int, *, rounds: int) -> None:
    """Odd requests are answered, or their connection is closed; afterwards the broker serves as before."""
    random = Random(seed)  # noqa: S311  # cases, not secrets
    with TemporaryDirectory() as directory:
        config = BrokerConfig(
            topic_count_max=30,
            partition_count_max=60,
            auto_create_topics=random.random() < 0.5,
        )
        _send_odd_requests(SimulatedBench(seed, config, Path(directory) / "users.json"), random, rounds)


def _send_odd_requests(bench: SimulatedBench, random: Random, rounds: int) -> None:
    with bench.running():
        topic_ids = tuple(bench.create_topic(name).topic_id for name in ("t", "u"))
        requests = OddRequests(random, topic_ids)
        versions = list(all_versions())
        for _ in range(rounds):
            random.shuffle(versions)
            for api_key, version in versions:
                frame = requests.frame(api_key, version)
                if random.random() < 0.2:
                    frame = damage(frame, random, after=HEADER_BYTES)
                bench.deliver(frame, is_answered=_is_answered(frame))
        bench.settle()
        bench.check_serves()


def _is_answered(frame: bytes) -> bool:
    """Whether the broker owes an answer, if it does not close the connection."""
    try:
        request = decode(frame)
    except ProtocolError:
        return True
    return not (isinstance(request, ProduceRequest) and request.acks == 0)


def decode(frame: bytes) -> object:
    """Read a request, as the broker does before it calls a handler."""
    header = read_request_header(frame)
    api = APIS.get(header.api_key)
    if api is None or not api.offers(header.api_version):
        return None
    return request_reader(header.api_key, header.api_version, api.request).read(frame, header)


def _frames(reader: FrameReader) -> Iterator[bytes]:
    while (size_bytes := reader.next_size()) is not None:
        frame = reader.take_frame(size_bytes)
        if frame is None:
            return
        yield frame


def _in_pieces(data: bytes, random: Random) -> Iterator[bytes]:
    while data:
        size = random.choice((1, 2, 3, 4, 5, 6, 50, len(data)))
        yield data[:size]
        data = data[size:]
