"""The stream, as it goes: messages in, records out, and a commit wherever a source transaction has ended.

A Kafka transaction holds whole source transactions only. It is committed as soon as nothing more has come, or
when it is large; while it commits, more comes, so that batches grow with the load by themselves. Positions
without events (of transactions that concern no table of ours, and of an idle database) are published every
`heartbeat_s`.

What is confirmed to the database is always the position of a commit that is done. A position is

    the end of a transaction's commit           → everything before it is published
    the end of a message outside of any         → the message is, too
    the end of the log, as a keep-alive says    → where nothing was under way
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from headrace.cdc.incremental import WATERMARK, ReadChunk
from headrace.cdc.last_values import MissingValues
from headrace.cdc.messages import Begin, Commit, LogicalMessage, Message, Relation
from headrace.cdc.missing_values import read_missing
from headrace.cdc.record import Record
from headrace.cdc.replication import Alive, Data
from headrace.cdc.spill import DiskSpill
from headrace.cdc.topic_names import heartbeat_topic_of
from headrace.cdc.transactions import Transactions
from headrace.failpoints import hit

if TYPE_CHECKING:
    from headrace.cdc.beginning import Parts
    from headrace.cdc.replication import ReplicationStream
    from headrace.cdc.side_snapshots import SideSnapshots
    from headrace.cdc.state import CaptureState

HEARTBEAT: Final = "headrace.heartbeat"
"""The prefix of heartbeats among logical messages."""
MESSAGES_BETWEEN_SIGNS: Final = 10_000
_OWN: Final = frozenset({HEARTBEAT, WATERMARK})


class Streaming:
    """Publishes what a stream brings. Belongs to the capture's thread."""

    def __init__(
        self, parts: Parts, stream: ReplicationStream, side: SideSnapshots, state: CaptureState
    ) -> None:
        self._parts = parts
        self._stream = stream
        self._side = side
        self._state = state
        self._transactions = Transactions(DiskSpill(parts.config.directory / "spill"))
        self._begin: Begin | None = None
        self._is_passed_over = False
        self._start_lsn = state.lsn
        self._committed_s = time.monotonic()
        self._heartbeat_key = json.dumps({"serverName": parts.config.prefix}, separators=(",", ":")).encode()

    @property
    def state(self) -> CaptureState:
        """What will be published with the next commit."""
        return self._state

    @property
    def is_whole(self) -> bool:
        """Whether no source transaction is under way, so that what was sent can be committed."""
        return self._begin is None

    def step(self) -> bool:
        """Take in what has come, commit what is whole, and say whether more may be there already."""
        publisher, most = self._parts.publisher, self._parts.config.batch_events_max
        count = 0
        for item in self._stream.read():
            count += 1
            if isinstance(item, Data):
                self._feed(item)
                if publisher.sent_count >= most and self._begin is None:
                    self.commit()
            else:
                self._alive(item)
        if self._begin is None and self._is_worth_a_commit():
            self.commit()
        return count > 0

    def commit(self) -> None:
        """Publish what was sent, and tell the database."""
        parts = self._parts
        self._state = replace(
            self._state.advanced(self._state.lsn, parts.publisher.sent_count),
            announced=dict(parts.writer.announced.digests),
            keys=dict(parts.writer.known_keys.kept),
        )
        parts.publisher.commit(self._state)
        self._stream.confirm(self._state.lsn)
        hit("capture.confirmed")
        self._committed_s = time.monotonic()
        parts.progress.committed(self._state)

    def replace_state(self, state: CaptureState) -> None:
        """Take on what was asked for from outside, such as a snapshot; published with the next commit."""
        self._state = state

    def _is_worth_a_commit(self) -> bool:
        if self._parts.publisher.sent_count:
            return True
        published = self._parts.publisher.state
        if published is None or published.tables != self._state.tables:
            return True
        interval_s = self._parts.config.heartbeat_s or 10.0
        return self._state.lsn > published.lsn and time.monotonic() - self._committed_s >= interval_s

    def _alive(self, alive: Alive) -> None:
        if self._begin is None:
            self._state = self._state.advanced(alive.end_lsn, 0)

    def _feed(self, data: Data) -> None:
        now_ns = time.time_ns()
        for count, (lsn, message) in enumerate(self._transactions.feed(data.lsn, data.payload)):
            self._take(lsn, message, now_ns)
            if count % MESSAGES_BETWEEN_SIGNS == MESSAGES_BETWEEN_SIGNS - 1:
                # A large transaction that was streamed comes all at once.
                self._stream.keep_alive()

    def _take(self, lsn: int, message: Message, now_ns: int) -> None:
        if isinstance(message, Begin):
            self._begin = message
            self._side.begun(message.xid, now_ns)
            # Never so after START_REPLICATION at our position; if it were, it would be published twice.
            self._is_passed_over = message.final_lsn < self._start_lsn
        if self._is_passed_over:
            self._pass_over(message)
            return
        if isinstance(message, LogicalMessage) and message.prefix in _OWN:
            self._own_message(message, now_ns)
        else:
            self._write(lsn, message, now_ns)
        if isinstance(message, Commit):
            self._begin = None
            self._state = self._state.advanced(message.end_lsn, 0)
        elif isinstance(message, LogicalMessage) and not message.is_transactional:
            # Its place is the end of its record, where the next one begins.
            self._state = self._state.advanced(message.lsn, 0)

    def _pass_over(self, message: Message) -> None:
        if isinstance(message, Relation):
            self._parts.writer.know(message)
        elif isinstance(message, Commit):
            self._begin, self._is_passed_over = None, False

    def _write(self, lsn: int, message: Message, now_ns: int) -> None:
        parts = self._parts
        if isinstance(message, Relation):
            self._side.described(message)
        made = parts.writer.write(lsn, message, now_ns)
        while isinstance(made, MissingValues):
            found = read_missing(parts.control, parts.config.dsn, made)
            made = parts.writer.write(lsn, made.answered(found), now_ns)
        if made:
            if self._side.is_watching and self._begin is not None:
                self._side.note(self._begin.xid, made)
            parts.publisher.send(made)

    def _own_message(self, message: LogicalMessage, now_ns: int) -> None:
        """Ours is no event of the database's: it says that we are there, or that a chunk may be published."""
        if message.prefix == WATERMARK:
            read = self._side.take(message.content)
            if read is not None:
                self._publish_chunk(read, now_ns)
        elif message.prefix == HEARTBEAT and message.content == self._parts.config.name.encode():
            value = {"ts_ms": now_ns // 1_000_000, "lsn": message.lsn}
            topic = heartbeat_topic_of(self._parts.config.prefix)
            record = Record(topic, self._heartbeat_key, json.dumps(value, separators=(",", ":")).encode())
            self._parts.publisher.send([record])

    def _publish_chunk(self, read: ReadChunk, now_ns: int) -> None:
        parts, chunk = self._parts, read.chunk
        records = self._side.records(parts.writer, read, now_ns)
        parts.publisher.send(records)
        hit("capture.snapshot")
        self._state = self._state.with_chunk(chunk.upto, len(records))
        parts.progress.chunk_published(self._state, chunk.table.name, len(records))
