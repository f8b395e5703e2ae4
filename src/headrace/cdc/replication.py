"""The connection over which PostgreSQL sends its changes, as a stream of bytes in, values out.

What the server sends once START_REPLICATION has been answered (integers are big-endian; times are
microseconds since 2000):

    'w'  start_lsn u64  end_lsn u64  sent i64  payload      a message of pgoutput
    'k'  end_lsn u64  sent i64  reply u8                    how far it is; may ask for an answer

What we send, as often as something was published, and at least every STATUS_S:

    'r'  written u64  flushed u64  applied u64  sent i64  reply u8

`flushed` is what counts: the server never sends again what lies before it, and deletes its log up to there.
So only positions that are durable beside their events are ever told. `written` is what has been received,
which the server only shows.

Nothing here waits but `wait`, which sleeps until the server has something to say, somebody wakes it, or time
is up. One thread owns a stream; `wake` may be called from any.
"""

from __future__ import annotations

import os
import select
import threading
import time
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

import psycopg
from psycopg import sql
from psycopg.pq import ExecStatus

from headrace.cdc.connection import connect, explanation
from headrace.cdc.positions import format_lsn
from headrace.errors import ProtocolError, SlotLost, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType
    from typing import Self

STATUS_S: Final = 5.0
"""So often the server is told how far we are: it gives up who says nothing for wal_sender_timeout, 60 s."""
READ_MESSAGES_MAX: Final = 20_000
"""How many messages are taken before other things get their turn."""
EPOCH_US: Final = 946_684_800_000_000
"""Midnight of 2000-01-01, where PostgreSQL's times begin, in microseconds since 1970."""
_DATA: Final = Struct(">cQQq")
_ALIVE: Final = Struct(">cQqB")
_STATUS: Final = Struct(">cQQQqB")
_GONE_STATES: Final = {"55000", "42704", "58P01"}
"""The slot is lost, is not there, or a file of the log is missing that it needs."""
_SLOT_IN_USE: Final = "55006"


class Data(NamedTuple):
    """A message of pgoutput, and where in the log it was found."""

    lsn: int
    payload: bytes


class Alive(NamedTuple):
    """The server has nothing more to send up to this position."""

    end_lsn: int


class ReplicationStream:
    """Reads the changes of a slot from a position on, and confirms what has been published."""

    def __init__(self, dsn: str, *, slot: str, publication: str, start_lsn: int) -> None:
        """Connect and start. Raises SlotLost where the slot can't serve that position."""
        self._dsn = dsn
        self._slot = slot
        self._received_lsn = self._published_lsn = start_lsn
        self._status_due_s = time.monotonic()
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        # Not a plain lock: a signal may come while its own thread closes the stream.
        self._closing = threading.RLock()
        self._is_closed = False
        self._connection = connect(dsn, replication=True)
        try:
            self._start(publication, start_lsn)
        except BaseException:
            self.close()
            raise
        self._poll = select.poll()
        self._poll.register(self._connection.pgconn.socket, select.POLLIN)
        self._poll.register(self._wake_read, select.POLLIN)

    def read(self) -> Iterator[Data | Alive]:
        """What has come and not been read, some of it at a time. Never waits."""
        pgconn = self._connection.pgconn
        unpack_data, data_size = _DATA.unpack_from, _DATA.size
        try:
            pgconn.consume_input()
            for _ in range(READ_MESSAGES_MAX):
                size, frame = pgconn.get_copy_data(1)
                if size == 0:
                    return
                if size < 0:
                    self._ended()
                kind = frame[0]
                if kind == 119:  # w
                    _, lsn, end_lsn, _ = unpack_data(frame)
                    self._received_lsn = max(self._received_lsn, lsn, end_lsn)
                    yield Data(lsn, bytes(frame[data_size:]))
                elif kind == 107:  # k
                    yield self._alive(frame)
                else:
                    raise ProtocolError(f"PostgreSQL sent a message of kind {kind} into a replication stream")
        except psycopg.Error as error:
            raise self._explained(error) from error

    def wait(self, timeout_s: float) -> None:
        """Return when there may be something to read, when somebody wakes us, or when time is up."""
        left_s = min(timeout_s, self._status_due_s - time.monotonic())
        ready = self._poll.poll(max(0.0, left_s) * 1000)
        if any(file == self._wake_read for file, _ in ready):
            os.read(self._wake_read, 4096)
        self._tell_if_due()

    def keep_alive(self) -> None:
        """Say that we are there, if it is time to. For work that takes longer than the server waits."""
        self._tell_if_due()

    def wake(self) -> None:
        """End a wait. From any thread, and from a handler of signals."""
        with self._closing:
            if not self._is_closed:
                os.write(self._wake_write, b"w")

    def confirm(self, lsn: int) -> None:
        """Everything before this position is published, durably, and so is the position."""
        if lsn > self._published_lsn:
            self._published_lsn = lsn
            self._tell()

    def close(self) -> None:
        """Let go of the slot."""
        with self._closing:
            if self._is_closed:
                return
            self._is_closed = True
            for file in (self._wake_read, self._wake_write):
                os.close(file)
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _start(self, publication: str, start_lsn: int) -> None:
        version = self._connection.info.server_version
        options = {
            # The newest that both sides know: 2 came with PostgreSQL 14, 4 with 16.
            "proto_version": "4" if version >= 160000 else "2",
            "publication_names": sql.Identifier(publication).as_string(None),
            "messages": "true",
            "streaming": "on",
        }
        listed = sql.SQL(", ").join(
            sql.SQL("{} {}").format(sql.SQL(name), sql.Literal(value)) for name, value in options.items()
        )
        statement = sql.SQL("START_REPLICATION SLOT {} LOGICAL {} ({})").format(
            sql.Identifier(self._slot), sql.SQL(format_lsn(start_lsn)), listed
        )
        try:
            result = self._connection.pgconn.exec_(statement.as_string(None).encode())
        except psycopg.Error as error:
            raise self._explained(error) from error
        if result.status != ExecStatus.COPY_BOTH:
            raise self._explained(psycopg.errors.error_from_result(result))

    def _alive(self, frame: bytes | memoryview) -> Alive:
        _, end_lsn, _, wants_answer = _ALIVE.unpack_from(frame)
        if wants_answer:
            self._status_due_s = 0.0
        return Alive(end_lsn)

    def _tell_if_due(self) -> None:
        if time.monotonic() >= self._status_due_s:
            self._tell()

    def _tell(self) -> None:
        self._status_due_s = time.monotonic() + STATUS_S
        now_us = time.time_ns() // 1000 - EPOCH_US
        published = self._published_lsn
        pgconn = self._connection.pgconn
        try:
            pgconn.put_copy_data(_STATUS.pack(b"r", self._received_lsn, published, published, now_us, 0))
            pgconn.flush()
        except psycopg.Error as error:
            raise self._explained(error) from error

    def _ended(self) -> None:
        """The server has ended the stream, and says why, if it can."""
        result = self._connection.pgconn.get_result()
        if result is not None and result.status == ExecStatus.FATAL_ERROR:
            raise self._explained(psycopg.errors.error_from_result(result))
        raise StoreUnavailable(f"the server has ended the replication stream of slot {self._slot}")

    def _explained(self, error: psycopg.Error) -> Exception:
        what = f"reading the changes of slot {self._slot}"
        told = explanation(self._dsn, what, error)
        if error.sqlstate in _GONE_STATES:
            return SlotLost(str(told))
        if error.sqlstate == _SLOT_IN_USE:
            return StoreUnavailable(
                f"{told}. Another process reads from the slot: is the capture running twice?"
            )
        return told
