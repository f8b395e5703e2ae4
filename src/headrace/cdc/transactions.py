"""From the replication stream to whole transactions, one after the other, in the order of their commits.

A transaction that fits into the server's memory is sent when it has committed, in one piece: its messages
pass straight through. A larger one is streamed while it still runs, in blocks that interleave with those of
others and with small transactions, and parts of it may be rolled back before the whole commits. Of each we
keep the messages as they came, one after the other, until the server says what became of them:

    frame = length u32, lsn u64, payload        (big-endian; length is that of the payload)

The same bytes lie in memory and, when all transactions together are larger than `memory_bytes_max`, on
disk: the largest is moved there first. A position in a transaction is a count of bytes from its first
frame, wherever they lie. What becomes of it:

- **Stream commit:** the frames are decoded one by one, between a Begin and a Commit like those of a small
  one.
- **Stream abort of a subtransaction:** subtransactions nest, so all that came after its first message is
  part of it, or of one within it, and is cut off. Descriptions of tables and types are no part of anything
  that was rolled back: the server may take them as sent, so they are put back behind the cut.
- **Stream abort of the whole:** all frames go.

A connection that breaks takes all of this along: the server sends streamed transactions again from their
start. So begin with new `Transactions` after each connect, over an empty spill.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Final, Protocol

from headrace.cdc.messages import (
    Begin,
    Commit,
    Message,
    StreamAbort,
    StreamCommit,
    StreamMessage,
    StreamStart,
    StreamStop,
)
from headrace.cdc.pgoutput import NAMES, decode, xid_in_stream
from headrace.errors import ProtocolError, StorageError

MEMORY_BYTES_MAX: Final = 16 * 1024 * 1024
"""How much of streamed transactions is kept in memory; what is beyond lies on disk."""
_FRAME: Final = Struct(">IQ")
_DESCRIPTIONS: Final = frozenset(b"RY")
_NEVER_WITHIN_A_BLOCK: Final = frozenset(b"BCScA")
_STOP: Final = ord("E")

LsnAndMessage = tuple[int, Message]


class Spill(Protocol):
    """Where the beginnings of transactions lie that are too large for memory: bytes by transaction."""

    def append(self, xid: int, data: bytes) -> None:
        """Put these bytes behind those that it has."""
        ...

    def truncate(self, xid: int, size_bytes: int) -> None:
        """Keep that many of its bytes."""
        ...

    def read(self, xid: int) -> Iterator[bytes]:
        """All its bytes, in pieces of bounded size."""
        ...

    def discard(self, xid: int) -> None:
        """Forget all its bytes."""
        ...


class Transactions:
    """Puts streamed transactions together. Belongs to one thread."""

    def __init__(self, spill: Spill, memory_bytes_max: int = MEMORY_BYTES_MAX) -> None:
        self._spill = spill
        self._memory_bytes_max = memory_bytes_max
        self._memory_bytes = 0
        self._open: dict[int, _Streamed] = {}
        self._receiving: _Streamed | None = None

    @property
    def memory_bytes(self) -> int:
        """How much of streamed transactions is in memory."""
        return self._memory_bytes

    @property
    def open_count(self) -> int:
        """How many streamed transactions have neither committed nor been rolled back."""
        return len(self._open)

    def feed(self, lsn: int, payload: bytes | memoryview) -> Iterable[LsnAndMessage]:
        """What is to be done after this message: nothing, or messages of transactions that have committed.

        Take all of them before the next message is fed: those of a large transaction are read from disk as
        they are taken.
        """
        data = payload if type(payload) is bytes else bytes(payload)
        if self._receiving is not None and data and data[0] != _STOP:
            self._keep(self._receiving, lsn, data)
            return ()
        message = decode(data, streaming=False)
        if isinstance(message, StreamMessage):
            return self._streamed(message)
        return ((lsn, message),)

    def _streamed(self, message: StreamMessage) -> Iterable[LsnAndMessage]:
        match message:
            case StreamStart():
                self._receiving = self._started(message)
            case StreamStop():
                if self._receiving is None:
                    raise ProtocolError("a stream of changes was stopped that had not been started")
                self._receiving = None
            case StreamAbort():
                self._abort(message)
            case StreamCommit():
                return self._committed(message)
        return ()

    def _started(self, start: StreamStart) -> _Streamed:
        if start.is_first and start.xid not in self._open:
            self._open[start.xid] = _Streamed(start.xid)
        elif start.is_first:
            raise ProtocolError(f"transaction {start.xid} was streamed from its start, for the second time")
        return self._known(start.xid)

    def _known(self, xid: int) -> _Streamed:
        if xid not in self._open:
            raise ProtocolError(
                f"transaction {xid} goes on or ends whose start was not streamed: start replication anew"
            )
        return self._open[xid]

    def _keep(self, transaction: _Streamed, lsn: int, payload: bytes) -> None:
        if payload[0] in _NEVER_WITHIN_A_BLOCK:
            raise ProtocolError(
                f"a message {NAMES[payload[0]]} came while transaction {transaction.xid} was streamed"
            )
        transaction.append(lsn, payload)
        self._memory_bytes += _FRAME.size + len(payload)
        if self._memory_bytes > self._memory_bytes_max:
            self._make_room()

    def _make_room(self) -> None:
        largest = max(self._open.values(), key=lambda each: len(each.tail))
        self._spill.append(largest.xid, bytes(largest.tail))
        self._memory_bytes -= len(largest.tail)
        largest.spilled_bytes += len(largest.tail)
        largest.tail.clear()

    def _abort(self, abort: StreamAbort) -> None:
        transaction = self._known(abort.xid)
        if abort.subxid == abort.xid:
            self._forget(transaction)
            return
        in_memory_before = len(transaction.tail)
        spilled_before = transaction.spilled_bytes
        transaction.roll_back(abort.subxid)
        if transaction.spilled_bytes < spilled_before:
            self._cut_spilled(transaction)
        self._memory_bytes += len(transaction.tail) - in_memory_before

    def _cut_spilled(self, transaction: _Streamed) -> None:
        if transaction.spilled_bytes:
            self._spill.truncate(transaction.xid, transaction.spilled_bytes)
        else:
            self._spill.discard(transaction.xid)

    def _forget(self, transaction: _Streamed) -> None:
        del self._open[transaction.xid]
        self._memory_bytes -= len(transaction.tail)
        if transaction.spilled_bytes:
            self._spill.discard(transaction.xid)

    def _committed(self, commit: StreamCommit) -> Iterator[LsnAndMessage]:
        transaction = self._known(commit.xid)
        return self._replayed(transaction, commit)

    def _replayed(self, transaction: _Streamed, commit: StreamCommit) -> Iterator[LsnAndMessage]:
        begin = Begin(final_lsn=commit.commit_lsn, commit_us=commit.commit_us, xid=commit.xid)
        yield commit.commit_lsn, begin
        chunks = self._spill.read(transaction.xid) if transaction.spilled_bytes else iter(())
        for lsn, payload in _frames(chunks, transaction):
            yield lsn, decode(payload, streaming=True)
        end = Commit(commit_lsn=commit.commit_lsn, end_lsn=commit.end_lsn, commit_us=commit.commit_us)
        self._forget(transaction)
        yield commit.end_lsn, end


class _Streamed:
    """The messages of one transaction that is still open."""

    def __init__(self, xid: int) -> None:
        self.xid = xid
        self.spilled_bytes = 0
        self.tail = bytearray()
        # Where the first message of each subtransaction lies, in the order of these places.
        self._starts: dict[int, int] = {}
        self._descriptions: list[tuple[int, bytes]] = []

    @property
    def size_bytes(self) -> int:
        """Of all its frames, wherever they lie."""
        return self.spilled_bytes + len(self.tail)

    def append(self, lsn: int, payload: bytes) -> None:
        """Take a message in."""
        xid = xid_in_stream(payload)
        if xid is not None and xid != self.xid and xid not in self._starts:
            self._starts[xid] = self.size_bytes
        self._append_frame(_FRAME.pack(len(payload), lsn) + payload)

    def roll_back(self, subxid: int) -> None:
        """Forget what the subtransaction did, if it did anything that we were told."""
        start = self._starts.get(subxid)
        if start is None:
            return
        while self._starts and next(reversed(self._starts.values())) >= start:
            self._starts.popitem()
        self.spilled_bytes = min(self.spilled_bytes, start)
        del self.tail[start - self.spilled_bytes :]
        self._put_descriptions_back(start)

    def _put_descriptions_back(self, start: int) -> None:
        cut_off = [frame for position, frame in self._descriptions if position >= start]
        self._descriptions = [each for each in self._descriptions if each[0] < start]
        for frame in cut_off:
            self._append_frame(frame)

    def _append_frame(self, frame: bytes) -> None:
        if frame[_FRAME.size] in _DESCRIPTIONS:
            self._descriptions.append((self.size_bytes, frame))
        self.tail += frame


def _frames(chunks: Iterator[bytes], transaction: _Streamed) -> Iterator[tuple[int, bytes]]:
    """The messages of a transaction, in the order in which they came."""
    buffer = bytearray()
    for chunk in chunks:
        buffer += chunk
        taken = 0
        for lsn, payload, taken in _whole_frames(buffer):  # noqa: B007 - where the last one ended is used below
            yield lsn, payload
        del buffer[:taken]
    if buffer:
        raise StorageError(
            f"what was spilled of transaction {transaction.xid} ends within a message: start the "
            "capture again, it is sent anew"
        )
    for lsn, payload, _ in _whole_frames(transaction.tail):
        yield lsn, payload


def _whole_frames(data: bytearray) -> Iterator[tuple[int, bytes, int]]:
    position, size = 0, len(data)
    while position + _FRAME.size <= size:
        length, lsn = _FRAME.unpack_from(data, position)
        start = position + _FRAME.size
        position = start + length
        if position > size:
            return
        yield lsn, bytes(data[start:position]), position
