"""One client's byte stream, without I/O: bytes in, request frames out, answers in the order of requests.

    stream    size i32, frame of that many bytes, size, frame, ...

The size is checked as soon as its four bytes are there, before anything is kept: whoever speaks TLS or HTTP
to this port would else be taken to announce hundreds of megabytes. Besides Produce, no request has reason
to be large, and their decoded form can be many times their bytes, so they have a lower maximum.

A request starts when everything before it on its connection has been answered, as in Kafka; but Produce
requests may follow each other at once, because their order is settled by the append and only their
acknowledgement waits. That keeps a producer with five requests in flight from waiting five times.
"""

from __future__ import annotations

from collections import deque
from struct import Struct
from typing import TYPE_CHECKING, Final

from headrace.config import KIB, MIB
from headrace.errors import ProtocolError

if TYPE_CHECKING:
    from headrace.kafka.codec.writer import Parts

SMALL_REQUEST_BYTES_MAX: Final = 16 * MIB
"""The most for any request but Produce."""
REQUESTS_WAITING_MAX: Final = 64
"""How many requests of a connection are kept before they start; reading stops above it."""
FRAME_BYTES_MIN: Final = 10
"""No request header is shorter."""
GATHERED_BYTES_MAX: Final = 4 * KIB
"""A piece of a frame is kept as it came if it is larger, and else gathered with others."""

_SIZE: Final = Struct(">i")
_SIZE_AND_KEY: Final = Struct(">ih")
_PRODUCE_KEY: Final = 0
_OTHER_PROTOCOLS: Final = (
    (b"\x16\x03", "a TLS handshake; this port is plain text, so set security.protocol=PLAINTEXT"),
    (b"GET ", "an HTTP request; this port speaks Kafka's protocol"),
    (b"POST", "an HTTP request; this port speaks Kafka's protocol"),
    (b"PUT ", "an HTTP request; this port speaks Kafka's protocol"),
    (b"HEAD", "an HTTP request; this port speaks Kafka's protocol"),
    (b"OPTI", "an HTTP request; this port speaks Kafka's protocol"),
    (b"DELE", "an HTTP request; this port speaks Kafka's protocol"),
    (b"PRI ", "an HTTP/2 connection; this port speaks Kafka's protocol"),
    (b"AMQP", "an AMQP connection; this port speaks Kafka's protocol"),
    (b"SSH-", "an SSH connection; this port speaks Kafka's protocol"),
)


class FrameReader:
    """Cuts a byte stream into frames.

    A frame that comes in several large pieces is put together once, when all of it is there. Small pieces are
    gathered, so that a client which sends byte by byte does not make the broker keep an object for each.
    """

    __slots__ = ("_pieces", "_position", "buffered_bytes", "frame_bytes_max", "takes_bare_tokens")

    def __init__(self, frame_bytes_max: int) -> None:
        self.frame_bytes_max = frame_bytes_max
        self.takes_bare_tokens = False
        """Whether frames are tokens of a log-in, which have no header."""
        self.buffered_bytes = 0
        """How many bytes have come that are not part of a whole frame yet."""
        self._pieces: list[bytes | bytearray] = []
        self._position = 0
        """Where in the first piece the next frame begins."""

    def receive(self, data: bytes) -> None:
        """Take bytes that have arrived."""
        pieces = self._pieces
        self.buffered_bytes += len(data)
        if self._position and isinstance(first := pieces[0], bytearray):
            # What has been taken must not stay for as long as the client sends without a pause.
            del first[: self._position]
            self._position = 0
        if not pieces or len(data) > GATHERED_BYTES_MAX:
            pieces.append(data)
        elif isinstance(pieces[-1], bytearray):
            pieces[-1] += data
        else:
            pieces.append(bytearray(data))

    def next_size(self) -> int | None:
        """The size of the next frame, once it is known and found right."""
        if self.takes_bare_tokens:
            return self._token_size()
        if self.buffered_bytes < _SIZE_AND_KEY.size:
            if self.buffered_bytes >= _SIZE.size:
                self._check(_SIZE.unpack(self._start(_SIZE.size))[0], self.frame_bytes_max)
            return None
        size, api_key = _SIZE_AND_KEY.unpack(self._start(_SIZE_AND_KEY.size))
        is_produce = api_key == _PRODUCE_KEY
        self._check(
            size, self.frame_bytes_max if is_produce else min(self.frame_bytes_max, SMALL_REQUEST_BYTES_MAX)
        )
        return int(size)

    def arrived_bytes(self, size_bytes: int) -> int:
        """How much of the next frame, which has that size, is there."""
        return min(size_bytes, self.buffered_bytes - _SIZE.size)

    def take_frame(self, size_bytes: int) -> bytes | None:
        """The next frame, which has that size (see `next_size`), if it is there as a whole."""
        if _SIZE.size + size_bytes > self.buffered_bytes:
            return None
        self.buffered_bytes -= _SIZE.size + size_bytes
        first, begin = self._pieces[0], self._position + _SIZE.size
        end = begin + size_bytes
        if end > len(first):
            return self._take_joined(begin, size_bytes)
        if end == len(first):
            del self._pieces[0]
            self._position = 0
        else:
            self._position = end
        return bytes(memoryview(first)[begin:end])

    def _take_joined(self, begin: int, size_bytes: int) -> bytes:
        """A frame that begins at a place in the first piece and ends in another."""
        parts: list[bytes | bytearray | memoryview] = [memoryview(self._pieces[0])[begin:]]
        missing_bytes = size_bytes - len(parts[0])
        count = 1
        while missing_bytes and len(piece := self._pieces[count]) <= missing_bytes:
            parts.append(piece)
            missing_bytes -= len(piece)
            count += 1
        if missing_bytes:
            parts.append(memoryview(self._pieces[count])[:missing_bytes])
        del self._pieces[:count]
        self._position = missing_bytes
        return b"".join(parts)

    def _start(self, size_bytes: int) -> bytes | bytearray:
        """The first bytes of all that are buffered, of which there must be so many."""
        while len(self._pieces[0]) - self._position < size_bytes:
            self._pieces[:2] = [b"".join((self._pieces[0][self._position :], self._pieces[1]))]
            self._position = 0
        return self._pieces[0][self._position : self._position + size_bytes]

    def _token_size(self) -> int | None:
        if self.buffered_bytes < _SIZE.size:
            return None
        (size,) = _SIZE.unpack(self._start(_SIZE.size))
        self._check(size, self.frame_bytes_max, size_min=0)
        return int(size)

    def _check(self, size: int, size_max: int, size_min: int = FRAME_BYTES_MIN) -> None:
        if size_min <= size <= size_max:
            return
        start = self._start(_SIZE.size)
        for prefix, description in _OTHER_PROTOCOLS:
            if start.startswith(prefix):
                raise ProtocolError(f"the first bytes look like {description}")
        raise ProtocolError(f"a frame says that it has {size} bytes; {size_min} to {size_max} are accepted")


class Slot:
    """The place of one answer in the order of a connection."""

    __slots__ = ("is_produce", "is_ready", "parts")

    def __init__(self, *, is_produce: bool) -> None:
        self.is_produce = is_produce
        self.is_ready = False
        self.parts: Parts | None = None


class AnswerQueue:
    """Keeps answers in the order of their requests."""

    __slots__ = ("_other_count", "_slots")

    def __init__(self) -> None:
        self._slots: deque[Slot] = deque()
        self._other_count = 0

    def __len__(self) -> int:
        return len(self._slots)

    def may_start(self, *, is_produce: bool) -> bool:
        """Whether the next request may start while earlier ones wait for their answers."""
        return not self._slots or (is_produce and self._other_count == 0)

    def open_slot(self, *, is_produce: bool) -> Slot:
        """Take the next place."""
        slot = Slot(is_produce=is_produce)
        self._slots.append(slot)
        self._other_count += not is_produce
        return slot

    def fill(self, slot: Slot, parts: Parts | None) -> list[Parts]:
        """Put an answer into its place, None for a request that has none; return what can be sent now."""
        slot.parts = parts
        slot.is_ready = True
        ready = []
        while self._slots and self._slots[0].is_ready:
            first = self._slots.popleft()
            self._other_count -= not first.is_produce
            if first.parts is not None:
                ready.append(first.parts)
        return ready


def is_produce(frame: bytes) -> bool:
    """Whether a request frame is a Produce."""
    return frame.startswith(b"\0\0")


def is_fetch(frame: bytes) -> bool:
    """Whether a request frame is a Fetch or a ShareFetch."""
    return frame.startswith((b"\0\1", b"\0\x4e"))
