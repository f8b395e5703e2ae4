"""One client's connection: hands its bytes to the frame reader and its frames to the dispatcher."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from contextlib import suppress
from dataclasses import replace
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from headrace.config import KIB, Address
from headrace.errors import ProtocolError, StorageError
from headrace.failpoints import hit
from headrace.kafka.answer import Pending, Silence
from headrace.kafka.budget import SMALL_FRAME_BYTES_MAX, Pace
from headrace.kafka.codec.frame import are_read, is_read, join_small
from headrace.kafka.connection import (
    REQUESTS_WAITING_MAX,
    AnswerQueue,
    FrameReader,
    Slot,
    is_fetch,
    is_produce,
)
from headrace.kafka.dispatch import Peer, Started, dispatch
from headrace.kafka.security.session import LOGIN_FRAME_BYTES_MAX
from headrace.kafka.services import ANONYMOUS, Scheduler
from headrace.kafka.unread_answer import UnreadAnswer
from headrace.kafka.unsent_answers import Backlog
from headrace.logs import fields
from headrace.security.tls import TlsStream

if TYPE_CHECKING:
    from collections.abc import Iterator
    from ssl import SSLContext

    from headrace.kafka.budget import Budgets
    from headrace.kafka.codec.writer import Parts
    from headrace.kafka.open_connections import OpenConnections
    from headrace.kafka.produce_template import ProduceTemplates, ReadyAnswer
    from headrace.kafka.security.session import SaslSession
    from headrace.kafka.services import Services

logger: Final = logging.getLogger(__name__)

FRAME_WAIT_S_MAX: Final = 60.0
"""A frame that has begun must be there as a whole within this time."""
MISTAKE: Final = "a request of %s failed in an unexpected way; closing its connection"
SIZE_BYTES: Final = 4
"""What goes before a frame."""
LOCAL_SEND_BYTES: Final = 256 * KIB
"""What the system keeps for a client on this machine before it takes no more. With more, it is the client's
own thread that moves the rest, each time it has read something, which takes it a tenth of its speed. A client
elsewhere needs as much as fits on the way to it, and the system finds out how much that is."""
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
        budgets: Budgets,
        connections: OpenConnections,
        loop: EventLoop,
        tls_context: SSLContext | None = None,
    ) -> None:
        self._services = services
        self._counters = services.counters
        self._budgets = budgets
        self._connections = connections
        self._loop = loop
        self._tls = None if tls_context is None else TlsStream(tls_context)
        self._reader = FrameReader(services.config.frame_bytes_max)
        self._answers = AnswerQueue()
        self._backlog = Backlog(services.unsent_answers)
        self._waiting: deque[bytes] = deque()
        self._pending: dict[Slot, Pending[Any]] = {}
        self._templates: ProduceTemplates | None = None
        self._at_once_bytes_max = 0
        """How large a request may be that is served in one go."""
        self._reserved_bytes = dict.fromkeys((budgets.small, budgets.large), 0)
        self._admitted_bytes = 0
        self._is_without_room = False
        self._opened_s = self._active_s = loop.time()
        self._frame_began_s: float | None = None
        self._pace = Pace()
        self._is_proved = False
        """Whether the client has proved all that it must."""
        self._is_pumping = False
        self._is_sending = False
        self._is_reading = True
        self._is_writable = True
        self._is_ending = False
        """Whether nothing more is to be read: the last answer is on its way, or the connection is lost."""
        self._lost: asyncio.Future[None] = loop.create_future()
        self._name = ""
        """What sessions call the connection."""
        self._socket = -1
        """What the system knows the connection by, if it may be given an answer as it is."""
        self._unread: UnreadAnswer | None = None
        """The answer that is on its way, if it waits in its files for the client to take it."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember who it is."""
        self._transport = cast("asyncio.Transport", transport)
        peer_name = self._transport.get_extra_info("peername")
        own_name = self._transport.get_extra_info("sockname")
        # A client that has reset its connection already has no name any more.
        if peer_name is None or own_name is None or not self._connections.take(self, peer_name[0]):
            self._is_ending = True
            self._transport.abort()
            return
        logins, config = self._services.logins, self._services.config
        session = None if logins is None else logins.new_session()
        self._peer = Peer(
            host=peer_name[0],
            port=peer_name[1],
            address=config.advertised or Address(own_name[0], own_name[1]),
            session=session,
        )
        self._name = f"{self._peer.host}:{self._peer.port}"
        client_socket = self._transport.get_extra_info("socket")
        if self._tls is None and client_socket is not None:
            self._socket = client_socket.fileno()
            if peer_name[0] == own_name[0]:
                # Where the client has gone already, some systems refuse; that it is gone shows soon enough.
                with suppress(OSError):
                    client_socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LOCAL_SEND_BYTES)
        self._is_proved = session is None and self._tls is None
        if session is not None:
            self._reader.frame_bytes_max = min(LOGIN_FRAME_BYTES_MAX, config.frame_bytes_max)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # asyncio's signature
        """Let go of everything that the connection holds."""
        self._is_ending = True
        self._drop_unread()
        self._connections.give_back(self)
        for pending in self._pending.values():
            pending.abandon()
        self._pending.clear()
        self._waiting.clear()
        self._services.unsent_answers.forget(self._pump)
        self._backlog.note(0)
        self._backlog.note_files(0)
        for budget, size_bytes in self._reserved_bytes.items():
            self._reserved_bytes[budget] = 0
            budget.release(size_bytes)
        if not self._lost.done():
            self._lost.set_result(None)
        if self._name:
            self._services.shares.connection_lost(self._name)

    def data_received(self, data: bytes) -> None:
        """Take bytes."""
        self._active_s = self._loop.time()
        self._counters.received_bytes += len(data)
        if self._tls is not None:
            data = self._decrypted(self._tls, data)
        if data and not self._serve_at_once(data):
            self._reader.receive(data)
            self._pump()

    def eof_received(self) -> bool:
        """The client sends no more, but may read on: it gets the answer that is on its way, if one is."""
        self._is_ending = True
        return self._unread is not None

    def pause_writing(self) -> None:
        """The client reads too slowly: start nothing more for it."""
        self._is_writable = False
        if not self._is_sending:
            self._note_backlog()

    def resume_writing(self) -> None:
        """The client has caught up. Some loops say so while they are being handed an answer's pieces."""
        self._is_writable = True
        if not self._is_sending:
            self._note_backlog()
            self._pump()

    def close(self) -> asyncio.Future[None]:
        """Send what is due, then close."""
        self._is_ending = True
        if self._unread is not None:
            return self._lost
        if self._tls is not None and not self._transport.is_closing():
            self._transport.write(self._tls.close())
        self._transport.close()
        return self._lost

    def abort(self) -> None:
        """Close now."""
        self._drop_unread()
        self._transport.abort()

    def close_if_late(self, now_s: float) -> None:
        """Close a connection that has kept us waiting for too long."""
        if self._backlog.size_bytes and self._note_backlog():
            self._active_s = now_s
        if self._unread is not None:
            self._active_s = max(self._active_s, self._unread.taken_s)
            self._note_backlog()
        if self._is_ending:
            if self._is_idle(now_s) or self._lateness(now_s):
                # It has been closed, but for answers that its client does not take.
                self.abort()
            return
        if reason := self._lateness(now_s):
            self._fail(ProtocolError(reason))
        elif self._is_idle(now_s):
            logger.debug("closing the connection of %s: nothing has happened on it for long", self._peer)
            if self._has_unsent:
                self.abort()
            else:
                self.close()

    def _serve_at_once(self, data: bytes) -> bool:
        """Serve data that is one request like an earlier one, if nothing else is going on; say whether.

        This is what `_pump` does, without all that can't be the case then.
        """
        size_bytes = len(data) - SIZE_BYTES
        if (
            self._templates is None
            or size_bytes > self._at_once_bytes_max
            or self._is_busy
            or int.from_bytes(data[:SIZE_BYTES], "big") != size_bytes
            or not self._budgets.small.has_room(size_bytes)
        ):
            return False
        try:
            started = self._templates.start(data[SIZE_BYTES:])
            if started is None:
                return False
            assert started.counters is not None  # Templates count what they start.
            started.counters.answered(started.outcome, perf_counter_ns() - started.began_ns)
            answer: ReadyAnswer = started.outcome
            self._counters.sent_bytes += len(answer.frame)
            self._transport.write(answer.frame)
            hit("kafka.answered")
        except Exception:
            # A mistake of ours in one request must not end the broker for everybody else.
            logger.exception(MISTAKE, self._peer, extra=self._log_fields())
            self.abort()
        return True

    @property
    def _is_busy(self) -> bool:
        """Whether there is more to think of than the bytes that have just come."""
        return bool(
            self._answers
            or self._waiting
            or self._reader.buffered_bytes
            or self._is_pumping
            or self._is_ending
            or not self._is_writable
            or not self._is_reading
        )

    def _pump(self) -> None:
        """Take frames and start requests, as far as order and limits allow."""
        if self._is_pumping or self._is_ending:
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
            logger.exception(MISTAKE, self._peer, extra=self._log_fields())
            self.abort()
        finally:
            self._is_pumping = False

    def _take_frames(self) -> None:
        while self._reader.buffered_bytes and len(self._waiting) < REQUESTS_WAITING_MAX:
            size_bytes = self._reader.next_size()
            if size_bytes is None or not self._admit(size_bytes):
                return
            frame = self._reader.take_frame(size_bytes)
            if frame is None:
                if self._frame_began_s is None:
                    self._frame_began_s = self._loop.time()
                return
            self._admitted_bytes = 0
            if self._frame_began_s is not None:
                self._frame_began_s = None
                self._pace.reset()
            self._waiting.append(frame)

    def _admit(self, size_bytes: int) -> bool:
        """Reserve room for what has come of the next frame, which has that size."""
        self._is_without_room = False
        arrived_bytes = self._reader.arrived_bytes(size_bytes)
        more_bytes = arrived_bytes - self._admitted_bytes
        if more_bytes == 0:
            return True
        budget = self._budgets.of(size_bytes)
        if not budget.reserve(more_bytes, self._pump, ends_frame=arrived_bytes == size_bytes):
            self._is_without_room = True
            return False
        self._admitted_bytes = arrived_bytes
        self._reserved_bytes[budget] += more_bytes
        return True

    def _may_start(self) -> bool:
        frame = self._waiting[0]
        if not self._is_writable or not self._answers.may_start(is_produce=is_produce(frame)):
            return False
        return not is_fetch(frame) or self._services.unsent_answers.has_room(self._pump)

    def _start(self, frame: bytes) -> None:
        slot = self._answers.open_slot(is_produce=is_produce(frame))
        size_bytes = len(frame)
        started = None if self._templates is None else self._templates.start(frame)
        if started is None:
            started = dispatch(self._services, self._peer, frame)
            if slot.is_produce:
                self._learn(frame)
        if not isinstance(started.outcome, Pending):
            self._answered(slot, size_bytes, started, started.outcome)
            return
        pending: Pending[Any] = started.outcome
        pending.then(lambda response: self._answered(slot, size_bytes, started, response))
        if not pending.is_resolved:
            self._pending[slot] = pending

    def _learn(self, frame: bytes) -> None:
        """Keep a Produce request to compare others with."""
        if self._peer.session is not None or self._tls is not None:
            return
        if self._templates is None:
            # What Produce needs is loaded when it is first asked for (see api.py).
            from headrace.kafka.produce_template import ProduceTemplates  # noqa: PLC0415

            self._templates = ProduceTemplates(self._services)
            if not self._services.commit.is_synchronous:
                self._at_once_bytes_max = min(SMALL_FRAME_BYTES_MAX, self._reader.frame_bytes_max)
        self._templates.learn(frame)

    def _answered(self, slot: Slot, size_bytes: int, started: Started, response: Any) -> None:
        if self._lost.done():
            return
        self._pending.pop(slot, None)
        budget = self._budgets.of(size_bytes)
        self._reserved_bytes[budget] -= size_bytes
        try:
            if started.counters is not None:
                started.counters.answered(response, perf_counter_ns() - started.began_ns)
            parts = None if response is Silence.KEEP_OPEN else started.encode(response)
            for ready in self._answers.fill(slot, parts):
                self._send(ready)
            if self._backlog.size_bytes or not self._is_writable:
                self._note_backlog()
            if self._peer.session is not None:
                self._log_in_further(self._peer.session)
        except StorageError as error:
            self._fail_to_read(error)
        except Exception:
            # Whoever resolved this answer may have others to resolve, of other connections.
            logger.exception(MISTAKE, self._peer, extra=self._log_fields())
            self.abort()
        budget.release(size_bytes)
        self._pump()

    def _send(self, parts: Parts) -> None:
        size_bytes = sum(map(len, parts))
        self._counters.sent_bytes += size_bytes
        # Many small parts cost more than one copy of them; a large part costs more to copy.
        if size_bytes < JOINED_BYTES_MAX and self._tls is None and are_read(parts):
            self._transport.write(join_small(parts))
        else:
            self._is_sending = True
            try:
                self._send_in_turn(parts)
            finally:
                self._is_sending = False
        hit("kafka.answered")

    def _fail_to_read(self, error: StorageError) -> None:
        """Close: half of an answer is on its way, so there is no other way to say what is wrong."""
        logger.error("closing the connection of %s: %s", self._peer, error, extra=self._log_fields())
        self.abort()

    @property
    def _has_unsent(self) -> bool:
        """Whether the client has to take more of its answers."""
        return bool(self._backlog.size_bytes) or self._unread is not None

    def _note_backlog(self) -> bool:
        """Note how much of the answers waits in memory; say whether the client has taken something."""
        if self._unread is not None:
            self._backlog.note_files(self._unread.file_count, self._unread.newly_sent_bytes())
            read_bytes = self._unread.read_bytes
            return self._backlog.note(0 if read_bytes < JOINED_BYTES_MAX else read_bytes)
        self._backlog.note_files(0)
        return self._backlog.note(0 if self._is_writable else self._transport.get_write_buffer_size())

    @property
    def _may_hand_over(self) -> bool:
        """Whether the socket is there, and nothing waits to be sent that an answer would overtake."""
        transport = self._transport
        return self._socket >= 0 and not transport.is_closing() and not transport.get_write_buffer_size()

    def _send_in_turn(self, parts: Parts) -> None:
        if self._may_hand_over:
            answer = UnreadAnswer(parts, self._services.unsent_answers)
            parts = answer.begin(self._socket)
            if parts and answer.wait(self._socket, self._end_unread):
                self._unread = answer
                self._is_writable = False
                return
        self._send_read(parts)

    def _end_unread(self, rest: Parts) -> None:
        """Go on after an answer that has waited in its files; what is left of it has to be read."""
        self._unread = None
        self._is_writable = True
        if sum(map(len, rest)) > self._services.unsent_answers.room_bytes:
            # Its client may be gone, or its file; should the system have had no room, it asks again.
            logger.warning("closing the connection of %s: its answer can't wait in memory", self._peer)
            self.abort()
            return
        self._is_sending = True
        try:
            self._send_read(rest)
        except StorageError as error:
            self._fail_to_read(error)
            return
        except Exception:
            logger.exception(MISTAKE, self._peer, extra=self._log_fields())
            self.abort()
            return
        finally:
            self._is_sending = False
        self._note_backlog()
        if self._is_ending:
            self._transport.close()
        else:
            self._pump()

    def _drop_unread(self) -> None:
        if self._unread is not None:
            self._unread.drop()
            self._unread = None

    def _send_read(self, parts: Parts) -> None:
        for pieces in _read_in_turn(parts):
            if self._transport.is_closing():
                # The client is gone: what it leaves unread need not be read from the disk.
                return
            if self._tls is None:
                self._transport.writelines(pieces)
            else:
                self._transport.write(self._tls.send(pieces))

    def _pause_or_resume_reading(self) -> None:
        if self._is_ending or self._transport.is_closing():
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
            self._pace.reset()

    def _decrypted(self, tls: TlsStream, data: bytes) -> bytes:
        """The plain bytes among those that came; none while the handshake goes on."""
        was_established = tls.is_established
        try:
            plain = tls.receive(data)
        except ProtocolError as error:
            self._fail(error)
            return b""
        if due := tls.due():
            self._transport.write(due)
        if tls.is_established and not was_established:
            self._greet_certified(tls)
        if tls.is_ended:
            self.close()
            return b""
        return plain

    def _greet_certified(self, tls: TlsStream) -> None:
        """Note what the handshake has told: what the client calls us, and who it is by its certificate."""
        peer, subject = self._peer, tls.subject()
        address = peer.address
        if tls.server_name is not None and self._services.config.advertised is None:
            address = Address(tls.server_name, address.port)
        certified = ANONYMOUS if subject is None else f"User:{subject}"
        self._peer = replace(peer, address=address, certified=certified)
        self._is_proved = peer.session is None

    def _log_in_further(self, session: SaslSession) -> None:
        """Take over what the last answer has changed."""
        self._reader.takes_bare_tokens = session.takes_bare_tokens
        if session.has_failed:
            self.close()
        elif session.is_open and not self._is_proved:
            self._is_proved = True
            self._reader.frame_bytes_max = self._services.config.frame_bytes_max

    def _lateness(self, now_s: float) -> str | None:
        """What the client should have done by now."""
        config = self._services.config
        if not self._is_proved and now_s - self._opened_s > config.authentication_wait_ms_max / 1000:
            return f"it has not logged in within {config.authentication_wait_ms_max} ms"
        if self._backlog.is_too_slow(now_s):
            return "it took its answers too slowly while others waited for theirs"
        if self._frame_began_s is None:
            return None
        if now_s - self._frame_began_s > FRAME_WAIT_S_MAX:
            return f"a frame was not there as a whole after {FRAME_WAIT_S_MAX:.0f} s"
        size_bytes = self._reader.next_size()
        if size_bytes is None or not self._budgets.of(size_bytes).is_short:
            self._pace.reset()
        elif self._pace.is_too_slow(self._admitted_bytes, now_s):
            return "a frame came too slowly while others waited for room"
        return None

    def _is_idle(self, now_s: float) -> bool:
        idle_s_max = self._services.config.connection_idle_ms_max / 1000
        if now_s - self._active_s <= idle_s_max:
            return False
        return self._has_unsent or (not self._answers and not self._waiting)

    def _log_fields(self) -> dict[str, Any]:
        return fields(client=str(self._peer), principal=self._peer.principal)

    def _fail(self, error: ProtocolError) -> None:
        self._connections.warn_of_closing(self._peer, error)
        if self._tls is None or self._backlog.size_bytes:
            # What the client does not read would have to go out before a connection that is closed ends.
            self.abort()
            return
        # A reason that the other side's TLS understands may be on its way.
        self._is_ending = True
        self._transport.write(self._tls.due())
        self._transport.close()


def _read_in_turn(parts: Parts) -> Iterator[list[bytes]]:
    """The bytes of an answer; what lies in the log is read when it is its turn."""
    pieces: list[bytes] = []
    for part in parts:
        if is_read(part):
            pieces.append(part)
            continue
        for piece in part.pieces():
            yield [*pieces, piece]
            pieces = []
    if pieces:
        yield pieces
