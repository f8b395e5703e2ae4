"""Requests and responses, header included, without the four bytes of the frame's size.

    request    api key i16, version i16, correlation id i32, client id (nullable string), [tags], body
    response   correlation id i32, [tags], body

Tags follow a header only in flexible versions, and never in the answer to ApiVersions: a client that asks
for a version which the broker lacks must be able to read the answer.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kio.index import load_request_schema, load_response_schema

from headrace.config import KIB
from headrace.errors import ProtocolError
from headrace.kafka.codec.reader import compile_reader, read_nullable_string, skip_tags
from headrace.kafka.codec.writer import compile_writer

if TYPE_CHECKING:
    from headrace.kafka.codec.reader import Reader
    from headrace.kafka.codec.shape import MessageClass
    from headrace.kafka.codec.writer import Parts, Writer

API_VERSIONS_KEY: Final = 18
REQUEST_HEADER_BYTES_MIN: Final = 10
"""The two numbers of the API, the correlation id and the length of the client id."""
LARGE_PART_BYTES_MIN: Final = 64 * KIB
"""A part of this size is sent as it is; smaller ones are copied together."""

_BYTES_ALONE: Final = frozenset((bytes,))
_REQUEST_START: Final = Struct(">hhi")
_SIZE: Final = Struct(">i")
_SIZE_AND_CORRELATION: Final = Struct(">ii")


class RequestHeader(NamedTuple):
    """Which request this is. The body starts at `end`, after tags where the version has them."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    end: int


def read_request_header(frame: bytes) -> RequestHeader:
    """Read what all versions of a header have in common."""
    if len(frame) < REQUEST_HEADER_BYTES_MIN:
        raise ProtocolError(f"a request of {len(frame)} bytes, which is shorter than its header")
    api_key, api_version, correlation_id = _REQUEST_START.unpack_from(frame, 0)
    client_id, end = read_nullable_string(frame, _REQUEST_START.size)
    return RequestHeader(api_key, api_version, correlation_id, client_id, end)


class RequestReader:
    """Reads the body of one version of a request."""

    __slots__ = ("_header_has_tags", "_read")

    def __init__(self, api_key: int, api_version: int, into: MessageClass) -> None:
        schema = load_request_schema(api_key, api_version)
        self._header_has_tags = schema.__header_schema__.__version__ >= 2
        self._read: Reader = compile_reader(schema, into)

    def read(self, frame: bytes, header: RequestHeader) -> Any:
        """Return the request; bytes after it are ignored, as Kafka does."""
        position = skip_tags(frame, header.end) if self._header_has_tags else header.end
        return self._read(frame, position)[0]


class ResponseWriter:
    """Writes one version of a response, with header and frame size."""

    __slots__ = ("_header_has_tags", "_write")

    def __init__(self, api_key: int, api_version: int) -> None:
        schema = load_response_schema(api_key, api_version)
        self._header_has_tags = api_key != API_VERSIONS_KEY and schema.__header_schema__.__version__ >= 1
        self._write: Writer = compile_writer(schema)

    def write(self, correlation_id: int, response: Any) -> Parts:
        """Return the frame in parts that are to be sent one after the other."""
        parts: Parts = [b"", b"\0"] if self._header_has_tags else [b""]
        self._write(response, parts)
        size_bytes = 4 + sum(map(len, parts))
        parts[0] = _SIZE_AND_CORRELATION.pack(size_bytes, correlation_id)
        if size_bytes < LARGE_PART_BYTES_MIN and are_read(parts):
            return [join_small(parts)]
        return _joined(parts)


class BareTokenWriter:
    """Writes a token of a log-in that has no header, only the frame's size: see `security.session`."""

    __slots__ = ()

    def write(self, _correlation_id: int, token: bytes) -> Parts:
        """Return the frame."""
        return [_SIZE.pack(len(token)) + token]


BARE_TOKENS: Final = BareTokenWriter()


def _joined(parts: Parts) -> Parts:
    """The same bytes in fewer parts: no socket takes hundreds of thousands of them in one call."""
    joined: Parts = []
    small: Parts = []
    small_bytes = 0
    for part in parts:
        is_large = len(part) >= LARGE_PART_BYTES_MIN or type(part) is not bytes
        if not is_large:
            small.append(part)
            small_bytes += len(part)
        if small and (is_large or small_bytes >= LARGE_PART_BYTES_MIN):
            joined.append(join_small(small))
            small, small_bytes = [], 0
        if is_large:
            joined.append(part)
    if small:
        joined.append(join_small(small))
    return joined


def are_read(parts: Parts) -> bool:
    """Whether nothing among the parts lies unread in the log (see `headrace.log.stored_batches`)."""
    return _BYTES_ALONE.issuperset(map(type, parts))


def is_read(part: Any) -> bool:
    """Whether these are bytes, and not a part that lies unread in the log."""
    return isinstance(part, bytes | memoryview)


def join_small(small_parts: Parts) -> bytes:
    """One piece of parts that are small together, and read."""
    return b"".join(small_parts)


@lru_cache(maxsize=1024)
def request_reader(api_key: int, api_version: int, into: MessageClass) -> RequestReader:
    """Return the reader of one version of a request, compiled at its first use."""
    return RequestReader(api_key, api_version, into)


@lru_cache(maxsize=1024)
def response_writer(api_key: int, api_version: int) -> ResponseWriter:
    """Return the writer of one version of a response, compiled at its first use."""
    return ResponseWriter(api_key, api_version)
