"""A byte stream cut into frames, and the frames that come and go with every message.

    frame    type u8, channel u16, size u32, payload of that many bytes, 0xCE

    content  a method frame, a header frame, and body frames until the body is whole

The size is checked as soon as the seven bytes before the payload are there, so that nothing is kept for a
frame that is too large. Frames that carry messages are written here in one go; all other methods are
written by `methods`.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct, error
from typing import Final, Protocol

from headrace.queue.amqp.refusals import FRAME_ERROR, violation
from headrace.queue.amqp.values import write_short_string

METHOD: Final = 1
HEADER: Final = 2
BODY: Final = 3
HEARTBEAT: Final = 8
FRAME_TYPES: Final = frozenset({METHOD, HEADER, BODY, HEARTBEAT})
FRAME_END: Final = 0xCE
FRAME_OVERHEAD_BYTES: Final = 8
"""What a frame has besides its payload. `frame_max` counts it in."""
FRAME_HEADER_BYTES: Final = 7

HEARTBEAT_FRAME: Final = b"\x08\0\0\0\0\0\0\xce"
FRONT_BYTES_MAX: Final = 1_024
"""How much of a message before its body is kept, to be looked for in the next one."""
NAME_CACHE_COUNT_MAX: Final = 1_024
"""How many names of exchanges and routing keys are kept in the form that they have on the wire."""

FRAME_START: Final = Struct(">BHI")
ACK_FRAME: Final = Struct(">BHIHHQBB")
_HEADER_START: Final = Struct(">BHIHHQ")
_NEXT_FRAME_START: Final = Struct(">BBHI")
"""The end of a frame and the start of the one that follows on it."""
_TAG_OR_SIZE: Final = Struct(">Q")
_BASIC_AND_WEIGHT: Final = b"\x00\x3c\x00\x00"
_DELIVER_REST: Final = Struct(">QB")
_METHOD_START: Final = Struct(">BHIHH")
_GET_COUNT: Final = Struct(">I")
_RETURN_CODE: Final = Struct(">H")
_END: Final = bytes((FRAME_END,))
PUBLISH_INDEX: Final = 0x003C0028
BASIC_AND_WEIGHT: Final = 0x003C0000
_METHOD_AND_INDEX: Final = Struct(">BHII")
_TO_HEADER: Final = Struct(">HHIIQ")
"""From the end of a frame to the properties in the header that follows on it."""
_TO_BODY: Final = Struct(">HHI")
"""From the end of a frame to the payload of the next one."""
_END_AND_HEADER: Final = FRAME_END << 8 | HEADER
_END_AND_BODY: Final = FRAME_END << 8 | BODY

short_string = lru_cache(NAME_CACHE_COUNT_MAX)(write_short_string)
"""A name in the form that it has on the wire: most names come again and again."""


class Content(Protocol):
    """What is to be known of a message to send it."""

    exchange: str
    routing_key: str
    properties: bytes
    """From their flags on."""
    body_bytes: int


class FrameReader:
    """Cuts a byte stream into frames. Bytes of a frame that is not whole yet are gathered."""

    __slots__ = (
        "_data",
        "_front",
        "_front_body_bytes",
        "_front_told",
        "_message_position",
        "_position",
        "_tail",
        "_tail_bytes_wanted",
        "frame_bytes_max",
        "is_broken",
    )

    def __init__(self, frame_bytes_max: int) -> None:
        self.frame_bytes_max = frame_bytes_max
        """The most that a frame may have, its overhead included."""
        self._data = b""
        self.is_broken = False
        """Whether nobody knows where the next frame begins."""
        self._position = 0
        self._message_position = 0
        self._front = b""
        """All that came of the last message before its body. Many messages differ in their bodies only."""
        self._front_told = (0, b"", b"")
        self._front_body_bytes = 0
        self._tail = bytearray()
        self._tail_bytes_wanted = 0

    @property
    def buffered_bytes(self) -> int:
        """How many bytes have come that were not taken as frames yet."""
        return len(self._data) - self._position + len(self._tail)

    def receive(self, data: bytes) -> None:
        """Take bytes that have arrived."""
        if self.is_broken:
            return
        if self._position < len(self._data):
            # Frames are waiting to be taken; what comes now is after them.
            self._tail += data
            return
        if self._tail:
            self._tail += data
            if len(self._tail) < self._tail_bytes_wanted:
                return
            data = bytes(self._tail)
            self._tail.clear()
            self._tail_bytes_wanted = 0
        self._data, self._position = data, 0

    def take(self, size_bytes: int) -> bytes | None:
        """So many bytes that are no frame, if they are there: a connection begins with some."""
        self._refill(size_bytes)
        end = self._position + size_bytes
        if end > len(self._data):
            self._keep_tail(size_bytes)
            return None
        taken = self._data[self._position : end]
        self._position = end
        return taken

    def take_frame(self) -> tuple[int, int, bytes] | None:
        """The next frame's type, channel and payload, if it is there as a whole. Raises QueueRefused."""
        position = self._position
        data = self._data
        if len(data) - position < FRAME_HEADER_BYTES:
            self._refill(FRAME_HEADER_BYTES)
            data, position = self._data, self._position
            if len(data) - position < FRAME_HEADER_BYTES:
                self._keep_tail(FRAME_HEADER_BYTES)
                return None
        kind, channel, size_bytes = FRAME_START.unpack_from(data, position)
        begin = position + FRAME_HEADER_BYTES
        end = begin + size_bytes
        if end >= len(data):
            self._check(kind, size_bytes)
            self._refill(size_bytes + FRAME_OVERHEAD_BYTES)
            if len(self._data) - self._position < size_bytes + FRAME_OVERHEAD_BYTES:
                self._keep_tail(size_bytes + FRAME_OVERHEAD_BYTES)
                return None
            data, begin = self._data, self._position + FRAME_HEADER_BYTES
            end = begin + size_bytes
        if data[end] != FRAME_END or kind not in FRAME_TYPES or size_bytes + 8 > self.frame_bytes_max:
            self._check(kind, size_bytes)
            self._break()
            raise violation(FRAME_ERROR, f"a frame of type {kind} does not end with 0xCE")
        self._position = end + 1
        return kind, channel, data[begin:end]

    def take_message(self, body_bytes_max: int) -> tuple[int, bytes, bytes, bytes] | None:
        """A message that is there whole, in three frames of one channel, as most of them are.

        Returns the channel, the arguments of basic.publish, the properties and the body. None for all else,
        be it right or wrong: then nothing is taken, and frames are to be taken one by one.
        """
        data = self._data
        position = self._position
        front = self._front
        if front and data.startswith(front, position):
            begin = position + len(front)
            body_end = begin + self._front_body_bytes
            is_whole = body_end < len(data) and data[body_end] == FRAME_END
            if is_whole and self._front_body_bytes <= body_bytes_max:
                self._position, self._message_position = body_end + 1, position
                return *self._front_told, data[begin:body_end]
        try:
            kind, channel, size_bytes, index = _METHOD_AND_INDEX.unpack_from(data, position)
            if index != PUBLISH_INDEX or kind != METHOD:
                return None
            end = position + FRAME_HEADER_BYTES + size_bytes
            ends, same, header_bytes, class_and_weight, body_bytes = _TO_HEADER.unpack_from(data, end)
            header_end = end + FRAME_OVERHEAD_BYTES + header_bytes
            body_ends, body_same, piece_bytes = _TO_BODY.unpack_from(data, header_end)
            body_end = header_end + FRAME_OVERHEAD_BYTES + piece_bytes
            if (
                ends != _END_AND_HEADER
                or body_ends != _END_AND_BODY
                or not same == body_same == channel
                or class_and_weight != BASIC_AND_WEIGHT
                or not 0 < body_bytes == piece_bytes <= body_bytes_max
                or data[body_end] != FRAME_END
                or max(size_bytes, header_bytes, piece_bytes) > self.frame_bytes_max - FRAME_OVERHEAD_BYTES
            ):
                return None
        except (error, IndexError):
            return None
        begin = header_end + FRAME_OVERHEAD_BYTES
        arguments = data[position + _METHOD_AND_INDEX.size : end]
        properties = data[end + _TO_HEADER.size : header_end]
        if begin - position <= FRONT_BYTES_MAX:
            self._front, self._front_body_bytes = data[position:begin], piece_bytes
            self._front_told = (channel, arguments, properties)
        self._position, self._message_position = body_end + 1, position
        return channel, arguments, properties, data[begin:body_end]

    def give_back(self) -> None:
        """Undo what `take_message` took: it is to be taken frame by frame. Call it right after that."""
        self._position = self._message_position

    def _check(self, kind: int, size_bytes: int) -> None:
        if kind not in FRAME_TYPES:
            self._break()
            raise violation(FRAME_ERROR, f"there is no frame of type {kind}")
        if size_bytes + FRAME_OVERHEAD_BYTES > self.frame_bytes_max:
            self._break()
            raise violation(
                FRAME_ERROR,
                f"a frame of type {kind} has {size_bytes} bytes; "
                f"{self.frame_bytes_max - FRAME_OVERHEAD_BYTES} are the most",
            )

    def _break(self) -> None:
        """Take nothing more."""
        self.is_broken = True
        self._data, self._position = b"", 0
        self._tail.clear()

    def _refill(self, wanted_bytes: int) -> None:
        """Have what came while frames were waiting, once it is their turn."""
        if self._tail and len(self._data) - self._position < wanted_bytes:
            self._data = self._data[self._position :] + bytes(self._tail)
            self._position = 0
            self._tail.clear()
            self._tail_bytes_wanted = 0

    def _keep_tail(self, wanted_bytes: int) -> None:
        """Keep what has come of a frame until it is whole."""
        self._tail[:0] = self._data[self._position :]
        self._tail_bytes_wanted = wanted_bytes
        self._data, self._position = b"", 0


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    """One frame."""
    return FRAME_START.pack(kind, channel, len(payload)) + payload + _END


def confirm_frame(channel: int, delivery_tag: int, is_multiple: bool) -> bytes:
    """basic.ack from the broker: a message was taken."""
    return ACK_FRAME.pack(METHOD, channel, 13, 60, 80, delivery_tag, is_multiple, FRAME_END)


def refusal_frame(channel: int, delivery_tag: int, is_multiple: bool) -> bytes:
    """basic.nack from the broker: a message was not taken."""
    return ACK_FRAME.pack(METHOD, channel, 13, 60, 120, delivery_tag, is_multiple, FRAME_END)


def header_frame(channel: int, message: Content) -> bytes:
    """The header of content."""
    properties = message.properties
    start = _HEADER_START.pack(HEADER, channel, 12 + len(properties), 60, 0, message.body_bytes)
    return start + properties + _END


class Deliveries:
    """Writes basic.deliver and its content for one channel.

    Most of it is the same from message to message: what goes before the delivery tag is the same for a
    consumer, and what goes between tag and body for messages of one route, size and properties.
    """

    __slots__ = ("_channel", "_frame_bytes_max", "_last", "_middles", "_rest", "_start")

    def __init__(self, channel: int, frame_bytes_max: int) -> None:
        self._channel = channel
        self._frame_bytes_max = frame_bytes_max
        self._middles: dict[tuple[str, str, str, int], tuple[bytes, bytes]] = {}
        self._last: tuple[str, str, str, bytes, int, bool] | None = None
        """What was told apart when `_start` and `_rest` were written, which go around the delivery tag."""
        self._start = self._rest = b""

    def pieces(
        self, consumer_tag: str, delivery_tag: int, is_redelivered: bool, message: Content, body: bytes
    ) -> tuple[bytes, ...]:
        """All frames of a delivery."""
        properties, size_bytes = message.properties, len(body)
        told = (consumer_tag, message.exchange, message.routing_key, properties, size_bytes, is_redelivered)
        is_one_frame = 0 < size_bytes <= self._frame_bytes_max - FRAME_OVERHEAD_BYTES
        if told != self._last:
            names = (consumer_tag, message.exchange, message.routing_key, len(properties))
            self._start, middle = self._middles.get(names) or self._remember(names)
            following = _NEXT_FRAME_START.pack(FRAME_END, BODY, self._channel, size_bytes)
            self._rest = b"".join(
                (
                    b"\x01" if is_redelivered else b"\x00",
                    middle,
                    _TAG_OR_SIZE.pack(size_bytes),
                    properties,
                    following if is_one_frame else _END,
                )
            )
            self._last = told
        if is_one_frame:
            return self._start, _TAG_OR_SIZE.pack(delivery_tag), self._rest, body, _END
        frames = body_frames(self._channel, body, self._frame_bytes_max)
        return self._start, _TAG_OR_SIZE.pack(delivery_tag), self._rest, *frames

    def _remember(self, names: tuple[str, str, str, int]) -> tuple[bytes, bytes]:
        tag, exchange, key = (write_short_string(name) for name in names[:3])
        method_bytes = 13 + len(tag) + len(exchange) + len(key)
        start = _METHOD_START.pack(METHOD, self._channel, method_bytes, 60, 60) + tag
        header = _NEXT_FRAME_START.pack(FRAME_END, HEADER, self._channel, 12 + names[3])
        middle = exchange + key + header + _BASIC_AND_WEIGHT
        if len(self._middles) >= NAME_CACHE_COUNT_MAX:
            self._middles.clear()
        self._middles[names] = start, middle
        return start, middle


def body_frames(channel: int, body: bytes, frame_bytes_max: int) -> tuple[bytes, ...]:
    """The body of content, in pieces; as many frames as it takes."""
    size_bytes = len(body)
    payload_max = frame_bytes_max - FRAME_OVERHEAD_BYTES
    if size_bytes <= payload_max:
        return (FRAME_START.pack(BODY, channel, size_bytes), body, _END) if size_bytes else ()
    pieces: list[bytes] = []
    for begin in range(0, size_bytes, payload_max):
        piece = body[begin : begin + payload_max]
        pieces += (FRAME_START.pack(BODY, channel, len(piece)), piece, _END)
    return tuple(pieces)


def get_ok_frame(
    channel: int, delivery_tag: int, is_redelivered: bool, message: Content, message_count: int
) -> bytes:
    """basic.get-ok; content comes after it."""
    exchange, key = short_string(message.exchange), short_string(message.routing_key)
    return b"".join(
        (
            _METHOD_START.pack(METHOD, channel, 17 + len(exchange) + len(key), 60, 71),
            _DELIVER_REST.pack(delivery_tag, is_redelivered),
            exchange,
            key,
            _GET_COUNT.pack(message_count),
            _END,
        )
    )


def return_frame(channel: int, code: int, text: str, message: Content) -> bytes:
    """basic.return; content comes after it."""
    reply, exchange = write_short_string(text), short_string(message.exchange)
    key = short_string(message.routing_key)
    return b"".join(
        (
            _METHOD_START.pack(METHOD, channel, 6 + len(reply) + len(exchange) + len(key), 60, 50),
            _RETURN_CODE.pack(code),
            reply,
            exchange,
            key,
            _END,
        )
    )
