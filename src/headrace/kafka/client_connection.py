"""One client's connection: hands its bytes to the frame reader and its frames to the dispatcher."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from headrace.config import KIB, Address
from headrace.errors import ProtocolError
from headrace.kafka.answer import Pending, Silence
from headrace.kafka.connection import REQUESTS_WAITING_MAX, AnswerQueue, FrameReader, Slot, is_produce
from headrace.kafka.dispatch import Peer, Started, dispatch
from headrace.kafka.services import Scheduler

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.kafka.budget import InFlightBudget
    from headrace.kafka.codec.writer import Parts
    from headrace.kafka.services import Services

logger: Final = logging.getLogger(__name__)

FRAME_WAIT_S_MAX: Final = 60.0
"""A frame that has begun must be there as a whole within this time."""
MISTAKE: Final = "a request of %s failed in an unexpected way; closing its connection"
JOINED_BYTES_MAX: Final = 64 * KIB
"""Answers below this size are sent as one piece."""


class EventLoop(Scheduler, Protocol):
    """What a connection needs of its event loop."""

    def time(self) -> float:
        """Seconds that only ever grow."""
        ...

    def create_future(self) -> asyncio.Future[Any]:
        """A future that belongs to the loop."""
        ...


class ClientConnection(asyncio.Protocol):
    """Belongs to the event loop's thread."""

    def __init__(
        self,
        services: Services,
        budget: InFlightBudget,
        connections: set[ClientConnection],
        loop: EventLoop,
        *,
        may_open: Callable[[], bool],
    ) -> None:
        self._services = services
        self._budget = budget
        self._connections = connections
        self._loop = loop
        self._may_open = may_open
        self._reader = FrameReader(services.config.frame_bytes_max)
        self._answers = AnswerQueue()
        self._waiting: deque[bytes] = deque()
        self._pending: dict[Slot, Pending[Any]] = {}
        self._reserved_bytes = 0
        self._admitted_bytes = 0
        self._is_without_room = False
        self._frame_began_s: float | None = None
        self._is_pumping = False
        self._is_reading = True
        self._is_writable = True
        self._is_lost = False
        self._lost: asyncio.Future[None] = loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember who it is."""
        self._transport = cast("asyncio.Transport", transport)
        peer_name = self._transport.get_extra_info("peername")
        own_name = self._transport.get_extra_info("sockname")
        # A client that has reset its connection already has no name any more.
        if peer_name is None or own_name is None or not self._may_open():
            self._is_lost = True
            self._transport.abort()
            return
        self._peer = Peer(host=peer_name[0], port=peer_name[1], address=Address(own_name[0], own_name[1]))
        self._connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # asyncio's signature
        """Let go of everything that the connection holds."""
        self._is_lost = True
        self._connections.discard(self)
        for pending in self._pending.values():
            pending.abandon()
        self._pending.clear()
        self._waiting.clear()
        reserved, self._reserved_bytes = self._reserved_bytes, 0
        self._budget.release(reserved)
        if not self._lost.done():
            self._lost.set_result(None)

    def data_received(self, data: bytes) -> None:
        """Take bytes."""
        self._reader.receive(data)
        self._pump()

    def pause_writing(self) -> None:
        """The client reads too slowly: start nothing more for it."""
        self._is_writable = False

    def resume_writing(self) -> None:
        """The client has caught up."""
        self._is_writable = True
        self._pump()

    def close(self) -> asyncio.Future[None]:
        """Send what is due, then close."""
        self._transport.close()
        return self._lost

    def abort(self) -> None:
        """Close now."""
        self._transport.abort()

    def close_if_stalled(self, now_s: float) -> None:
        """Close a connection whose frame has been arriving for too long."""
        if self._frame_began_s is not None and now_s - self._frame_began_s > FRAME_WAIT_S_MAX:
            self._fail(ProtocolError(f"a frame was not there as a whole after {FRAME_WAIT_S_MAX:.0f} s"))

    def _pump(self) -> None:
        """Take frames and start requests, as far as order and limits allow."""
        if self._is_pumping or self._is_lost:
            return
        self._is_pumping = True
        try:
            self._take_frames()
            while self._waiting and self._may_start():
                self._start(self._waiting.popleft())
                self._take_frames()
            self._pause_or_resume_reading()
        except ProtocolError as error:
            self._fail(error)
        except Exception:
            # A mistake of ours in one request must not end the broker for everybody else.
            logger.exception(MISTAKE, self._peer)
            self.abort()
        finally:
            self._is_pumping = False

    def _take_frames(self) -> None:
        while len(self._waiting) < REQUESTS_WAITING_MAX:
            if not self._admit():
                return
            frame = self._reader.next_frame()
            if frame is None:
                if self._frame_began_s is None:
                    self._frame_began_s = self._loop.time()
                return
            self._admitted_bytes = 0
            self._frame_began_s = None
            self._waiting.append(frame)

    def _admit(self) -> bool:
        """Reserve room for what has come of the next frame."""
        self._is_without_room = False
        size_bytes = self._reader.next_size()
        if size_bytes is None:
            return False
        arrived_bytes = self._reader.arrived_bytes(size_bytes)
        more_bytes = arrived_bytes - self._admitted_bytes
        if more_bytes == 0:
            return True
        if not self._budget.reserve(more_bytes, self._pump, ends_frame=arrived_bytes == size_bytes):
            self._is_without_room = True
            return False
        self._admitted_bytes = arrived_bytes
        self._reserved_bytes += more_bytes
        return True

    def _may_start(self) -> bool:
        return self._is_writable and self._answers.may_start(is_produce=is_produce(self._waiting[0]))

    def _start(self, frame: bytes) -> None:
        slot = self._answers.open_slot(is_produce=is_produce(frame))
        size_bytes = len(frame)
        started = dispatch(self._services, self._peer, frame)
        if not isinstance(started.outcome, Pending):
            self._answered(slot, size_bytes, started, started.outcome)
            return
        pending: Pending[Any] = started.outcome
        pending.then(lambda response: self._answered(slot, size_bytes, started, response))
        if not pending.is_resolved:
            self._pending[slot] = pending

    def _answered(self, slot: Slot, size_bytes: int, started: Started, response: Any) -> None:
        if self._is_lost:
            return
        self._pending.pop(slot, None)
        self._reserved_bytes -= size_bytes
        try:
            parts = None if response is Silence.KEEP_OPEN else started.encode(response)
            for ready in self._answers.fill(slot, parts):
                self._send(ready)
        except Exception:
            # Whoever resolved this answer may have others to resolve, of other connections.
            logger.exception(MISTAKE, self._peer)
            self.abort()
        self._budget.release(size_bytes)
        self._pump()

    def _send(self, parts: Parts) -> None:
        # Many small parts cost more than one copy of them; a large part costs more to copy.
        if sum(map(len, parts)) < JOINED_BYTES_MAX:
            self._transport.write(b"".join(parts))
        else:
            self._transport.writelines(parts)

    def _pause_or_resume_reading(self) -> None:
        if self._is_lost or self._transport.is_closing():
            return
        wants_reading = len(self._waiting) < REQUESTS_WAITING_MAX and not self._is_without_room
        if wants_reading == self._is_reading:
            return
        self._is_reading = wants_reading
        if wants_reading:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()
            # A frame that is late because we don't read it is not the client's fault.
            self._frame_began_s = None

    def _fail(self, error: ProtocolError) -> None:
        logger.warning("closing the connection of %s: %s", self._peer, error)
        self.abort()
