"""A client's connection: requests in, responses out, in the real bytes of the protocol.

Each client speaks one version of each API, chosen by the seed from those that the broker offers, so that all
of them are heard over many stories.
"""

from __future__ import annotations

import sys
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode

from headrace.kafka.api import APIS
from headrace.kafka.codec.frame import API_VERSIONS_KEY
from headrace.kafka.codec.reader import compile_reader, skip_tags
from headrace.kafka.codec.writer import compile_writer
from headrace.testing.simulation.loop import Future, SimulatedLoop, TimeUp
from headrace.testing.simulation.network import ConnectionLost, Link, Network

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator
    from random import Random

    from headrace.testing.history import History
    from headrace.testing.simulation.clock import SimulatedClock
    from headrace.testing.simulation.topics import Partition

REQUEST_S_MAX: Final = 20.0
"""A client that has waited so long for an answer gives its connection up."""
RECONNECT_S: Final = (0.005, 0.1)

_HEADER: Final = Struct(">hhi")
_SIZE: Final = Struct(">i")
_SIZE_AND_CORRELATION: Final = Struct(">ii")


class _Codec(NamedTuple):
    """How one version of an API is written and read by a client."""

    has_request_tags: bool
    has_response_tags: bool
    write: Callable[[Any, list[bytes]], None]
    read: Callable[[bytes, int], tuple[Any, int]]


@lru_cache(maxsize=1024)
def _codec(api_key: int, version: int) -> _Codec:
    request, response = load_request_schema(api_key, version), load_response_schema(api_key, version)
    request_class = APIS[api_key].request
    name = request_class.__name__.removesuffix("Request") + "Response"
    return _Codec(
        has_request_tags=request.__header_schema__.__version__ >= 2,
        has_response_tags=api_key != API_VERSIONS_KEY and response.__header_schema__.__version__ >= 1,
        write=compile_writer(request),
        read=compile_reader(response, getattr(sys.modules[request_class.__module__], name)),
    )


_KEY_OF: Final = {api.request: api.key for api in APIS.values()}


def error_of(answer: Any) -> ErrorCode:
    """The error code of an answer, or of a part of one. Readers leave it as a number."""
    return ErrorCode(answer.error_code)


class Channel:
    """One connection of a client. Answers come in the order of requests."""

    def __init__(self, link: Link, client_id: str) -> None:
        self._link = link
        self._client_id = client_id.encode()
        self._waiting: deque[tuple[int, _Codec, Future[Any]]] = deque()
        self._correlation_id = 0
        self._buffer = b""
        link.on_data = self._receive
        link.on_lost = self._lose

    @property
    def is_open(self) -> bool:
        """Whether requests can be sent."""
        return self._link.is_open

    def send(self, request: Any, version: int, *, is_answered: bool = True) -> Future[Any]:
        """Send a request. Its answer fails with ConnectionLost when the connection breaks before it comes."""
        answer: Future[Any] = Future()
        if not self._link.is_open:
            answer.set_error(ConnectionLost())
            return answer
        api_key = _KEY_OF[type(request)]
        codec = _codec(api_key, version)
        self._correlation_id += 1
        head = _HEADER.pack(api_key, version, self._correlation_id)
        parts = [head, len(self._client_id).to_bytes(2, "big"), self._client_id]
        if codec.has_request_tags:
            parts.append(b"\0")
        codec.write(request, parts)
        if is_answered:
            self._waiting.append((self._correlation_id, codec, answer))
        else:
            answer.set_result(None)
        frame = b"".join(parts)
        self._link.send(_SIZE.pack(len(frame)) + frame)
        return answer

    def close(self) -> None:
        """Break the connection."""
        self._link.cut()

    def _receive(self, data: bytes) -> None:
        data = self._buffer + data if self._buffer else data
        position = 0
        while len(data) - position >= 4:
            end = position + 4 + _SIZE.unpack_from(data, position)[0]
            if len(data) < end:
                break
            self._take(data[position:end])
            position = end
        self._buffer = data[position:]

    def _take(self, frame: bytes) -> None:
        expected_id, codec, answer = self._waiting.popleft()
        _, correlation_id = _SIZE_AND_CORRELATION.unpack_from(frame, 0)
        assert correlation_id == expected_id, f"answer {correlation_id} came where {expected_id} was due"
        position = skip_tags(frame, 8) if codec.has_response_tags else 8
        response, end = codec.read(frame, position)
        assert end == len(frame), f"{len(frame) - end} bytes follow the answer"
        answer.set_result(response)

    def _lose(self) -> None:
        waiting, self._waiting = self._waiting, deque()
        for _, _, answer in waiting:
            answer.set_error(ConnectionLost())


@dataclass(slots=True, kw_only=True)
class World:
    """What clients live in."""

    loop: SimulatedLoop
    clock: SimulatedClock
    network: Network
    history: History
    trace: Callable[[str], None]
    values: count[int] = field(default_factory=count)
    """Values that no record has yet."""
    in_doubt: dict[int, Callable[[], None]] = field(default_factory=dict)
    """What to write down of operations that have begun, should the story end before they do."""
    shrinking: set[Partition] = field(default_factory=set)
    """Partitions of which the first records may be deleted."""
    damaged: set[Partition] = field(default_factory=set)
    """Partitions of which files have been damaged."""
    made_of: dict[Hashable, int] = field(default_factory=dict)
    """By value that was made from another one, that other."""


class Client:
    """A process that talks to the broker, reconnecting as often as it takes."""

    is_prompt = False
    """Whether nothing that was sent arrives after the client has heard that its connection is broken."""

    def __init__(self, world: World, name: str, random: Random) -> None:
        self.world = world
        self.loop = world.loop
        self.history = world.history
        self.name = name
        self.random = random
        self._versions: dict[int, int] = {}
        self._channel: Channel | None = None

    def trace(self, text: str) -> None:
        """Tell what happens."""
        self.world.trace(f"{self.name} {text}")

    @contextmanager
    def in_doubt(self, note: Callable[[], None]) -> Iterator[None]:
        """While an operation is under way, know what is to be written down if the story ends before it."""
        number = self.history.tick()
        self.world.in_doubt[number] = note
        try:
            yield
        finally:
            del self.world.in_doubt[number]

    def version(self, request_class: type) -> int:
        """The version in which this client speaks."""
        api = APIS[_KEY_OF[request_class]]
        if api.key not in self._versions:
            self._versions[api.key] = self.random.randint(api.version_first, api.version_last)
        return self._versions[api.key]

    def speak(self, request_class: type, *, first: int | None = None, last: int | None = None) -> None:
        """Speak a version between these, both included."""
        api = APIS[_KEY_OF[request_class]]
        self._versions[api.key] = self.random.randint(
            api.version_first if first is None else first, api.version_last if last is None else last
        )

    async def connected(self) -> Channel:
        """The connection, which is made when there is none."""
        while self._channel is None or not self._channel.is_open:
            try:
                link = self.world.network.connect()
                link.is_prompt = self.is_prompt
                self._channel = Channel(link, self.name)
            except ConnectionLost:
                await self.pause()
        return self._channel

    def disconnect(self) -> None:
        """Give the connection up."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    async def pause(self) -> None:
        """Wait before the next try."""
        await self.loop.sleep(self.random.uniform(*RECONNECT_S))

    async def try_request(self, request: Any) -> Any:
        """Ask once. Raises ConnectionLost if no answer came: then nobody knows whether it was heard."""
        channel = await self.connected()
        return await self.answer(channel, channel.send(request, self.version(type(request))))

    async def answer(self, channel: Channel, answer: Future[Any]) -> Any:
        """The answer, in time."""
        try:
            return await self.loop.in_time(answer, REQUEST_S_MAX)
        except TimeUp:
            channel.close()
            raise ConnectionLost from None

    async def request(self, request: Any) -> Any:
        """Ask until an answer comes. The request may be heard more than once."""
        while True:
            try:
                return await self.try_request(request)
            except ConnectionLost:
                await self.pause()
