"""Debezium's envelope: what an event says besides the row.

    {"before": row or null, "after": row or null,
     "source": {version, connector, name, ts_ms, snapshot, db, sequence, ts_us, ts_ns, schema, table, txId,
                lsn, xmin, origin, origin_lsn},
     "transaction": {id, total_order, data_collection_order} or null,
     "op": "c" | "u" | "d" | "r" | "t", "ts_ms", "ts_us", "ts_ns"}

`source.ts_*` are when the transaction committed, the others when the capture wrote the event. `sequence` is
a JSON array in a string: where the transaction before ended, and where this change lies in the log; both
only grow.

**One thing is not copied.** Debezium makes a transaction's id of its number and the place of the change at
hand, so that the rows of a transaction have different ids, and none the id that its BEGIN and END have.
Here the id is the number and the place of the commit, `806:419580304`: one transaction, one id, on rows and
on the topic of transactions, and the same again after a restart. Readers of Debezium's events take the
number only, which still is the part before the colon.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from json import JSONEncoder
from typing import Final, Literal

from headrace.cdc.messages import Begin, LogicalMessage, Origin
from headrace.cdc.settings import EventSettings
from headrace.cdc.tables import Table
from headrace.cdc.values.scalars import base64_string

SnapshotMarker = Literal[
    "first", "first_in_data_collection", "true", "last_in_data_collection", "last", "incremental"
]
MESSAGES: Final = "message"
"""What logical messages are counted as, in place of a table."""
_LSN: Final = "\0"
_encode: Final = JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotPoint:
    """Where in the log a row of a snapshot belongs."""

    marker: SnapshotMarker
    at_ns: int
    """When the snapshot was taken."""
    lsn: int | None
    """From where on the stream follows; None for an incremental snapshot."""
    xid: int | None = None
    last_commit_lsn: int | None = None
    """Where the last transaction ended that was streamed before."""


def as_json(value: object) -> bytes:
    """Written as everything here is: without spaces, and with letters as they are."""
    return _encode(value).encode()


@lru_cache(maxsize=10_000)
def _quoted(name: str) -> str:
    """A JSON string of a name that is written again and again."""
    return _encode(name)


class Envelopes:
    """Writes the events of one capture."""

    def __init__(self, settings: EventSettings) -> None:
        self._settings = settings
        begin = {"version": settings.version, "connector": "postgresql", "name": settings.prefix}
        self._begin = as_json(begin).decode()[:-1]
        self._database = as_json(settings.database).decode()
        # Most rows of a snapshot come from the same place as the one before.
        self._snapshot: tuple[Table | None, SnapshotPoint | None, str] = (None, None, "")

    def transaction(
        self, begin: Begin, origin: Origin | None, last_commit_lsn: int | None
    ) -> TransactionEvents:
        """The events of a transaction."""
        return TransactionEvents(self, self._settings, begin, origin, last_commit_lsn)

    def snapshot_row(self, table: Table, row: bytes, point: SnapshotPoint, now_ns: int) -> bytes:
        """A row that a snapshot has found."""
        if self._snapshot[0] is not table or self._snapshot[1] != point:
            self._snapshot = (table, point, self._snapshot_source(table, point))
        rest = f'{self._snapshot[2]},"transaction":null,"op":"r",{_written_at(now_ns)}}}'
        return b'{"before":null,"after":%b,%b' % (row, rest.encode())

    def _snapshot_source(self, table: Table, point: SnapshotPoint) -> str:
        lsn = point.lsn if point.lsn is not None else point.last_commit_lsn
        return self.source(
            table.relation.schema,
            table.relation.name,
            at_ns=point.at_ns,
            snapshot=point.marker,
            sequence=(point.last_commit_lsn, "" if lsn is None else str(lsn)),
            lsn="null" if point.lsn is None else str(point.lsn),
            xid=point.xid,
        )

    def message(self, message: LogicalMessage, last_commit_lsn: int | None, now_ns: int) -> bytes:
        """A logical message that is part of no transaction."""
        lsn = str(message.lsn)
        source = self.source("", "", at_ns=now_ns, snapshot="false", sequence=(last_commit_lsn, lsn), lsn=lsn)
        return message_json(message, source, "null", now_ns)

    def source(  # noqa: PLR0913 - each is a field of it
        self,
        schema: str,
        table: str,
        *,
        at_ns: int,
        snapshot: str,
        sequence: tuple[int | None, str],
        lsn: str,
        xid: int | None = None,
        origin: Origin | None = None,
    ) -> str:
        """Where an event comes from, with the name of the field."""
        before = "null" if sequence[0] is None else f'\\"{sequence[0]}\\"'
        names = f'"schema":{_quoted(schema)},"table":{_quoted(table)}'
        number = "null" if xid is None else xid
        came_from = "null" if origin is None else _quoted(origin.name)
        came_at = "null" if origin is None else origin.commit_lsn
        return (
            f'"source":{self._begin},"ts_ms":{at_ns // 1_000_000},"snapshot":"{snapshot}",'
            f'"db":{self._database},"sequence":"[{before},\\"{sequence[1]}\\"]",'
            f'"ts_us":{at_ns // 1000},"ts_ns":{at_ns},{names},'
            f'"txId":{number},"lsn":{lsn},"xmin":null,"origin":{came_from},"origin_lsn":{came_at}}}'
        )


class _Collection:
    """What the events of a table have in common within a transaction, and how many there are."""

    def __init__(self, source: str) -> None:
        # All but the change's own place in the log, which is there twice.
        self.until_sequence, self.until_lsn, self.rest = source.split(_LSN)
        self.count = 0


class TransactionEvents:
    """Writes the events of one transaction, and counts them."""

    def __init__(
        self,
        envelopes: Envelopes,
        settings: EventSettings,
        begin: Begin,
        origin: Origin | None,
        last_commit_lsn: int | None,
    ) -> None:
        self.id = f"{begin.xid}:{begin.final_lsn}"
        self.key = f'{{"id":"{self.id}"}}'.encode()
        """By which its BEGIN and END are known."""
        self.event_count = 0
        self._envelopes = envelopes
        self._has_metadata = settings.transactions
        self._begin = begin
        self._origin = origin
        self._last_commit_lsn = last_commit_lsn
        self._collections: dict[str, _Collection] = {}

    def row(self, table: Table, op: str, *, lsn: int, before: bytes, after: bytes, now_ns: int) -> bytes:
        """A row that has come, changed or gone, or a table that was emptied."""
        collection = self._collections.get(table.collection) or self._add_table(table)
        transaction = self._counted(collection)
        rest = (
            f"{collection.until_sequence}{lsn}{collection.until_lsn}{lsn}{collection.rest},"
            f'"transaction":{transaction},"op":"{op}",{_written_at(now_ns)}}}'
        )
        return b'{"before":%b,"after":%b,%b' % (before, after, rest.encode())

    def message(self, message: LogicalMessage, now_ns: int) -> bytes:
        """A logical message."""
        collection = self._collections.get(MESSAGES) or self._add(MESSAGES, "", "")
        transaction = self._counted(collection)
        source = (
            f"{collection.until_sequence}{message.lsn}{collection.until_lsn}{message.lsn}{collection.rest}"
        )
        return message_json(message, source, transaction, now_ns)

    def source(self, schema: str, table: str, lsn: int | str) -> str:
        """Where an event comes from that is not counted."""
        return self._envelopes.source(
            schema,
            table,
            at_ns=self._begin.commit_us * 1000,
            snapshot="false",
            sequence=(self._last_commit_lsn, str(lsn)),
            lsn=str(lsn),
            xid=self._begin.xid,
            origin=self._origin,
        )

    def begin(self) -> bytes:
        """That it has begun."""
        return self._status("BEGIN", "null", "null")

    def end(self) -> bytes:
        """That it is over, and how many events it has had."""
        counts = ",".join(
            f'{{"data_collection":{_quoted(name)},"event_count":{collection.count}}}'
            for name, collection in self._collections.items()
        )
        return self._status("END", str(self.event_count), f"[{counts}]")

    def _status(self, status: str, event_count: str, counts: str) -> bytes:
        return (
            f'{{"status":"{status}","id":"{self.id}","event_count":{event_count},'
            f'"data_collections":{counts},"ts_ms":{self._begin.commit_us // 1000}}}'
        ).encode()

    def _add_table(self, table: Table) -> _Collection:
        return self._add(table.collection, table.relation.schema, table.relation.name)

    def _add(self, counted_as: str, schema: str, table: str) -> _Collection:
        collection = self._collections[counted_as] = _Collection(self.source(schema, table, _LSN))
        return collection

    def _counted(self, collection: _Collection) -> str:
        self.event_count += 1
        collection.count += 1
        if not self._has_metadata:
            return "null"
        return (
            f'{{"id":"{self.id}","total_order":{self.event_count},'
            f'"data_collection_order":{collection.count}}}'
        )


def message_json(message: LogicalMessage, source: str, transaction: str, now_ns: int) -> bytes:
    """The event of a logical message, which has an envelope of its own."""
    prefix = as_json(message.prefix).decode()
    content = base64_string(message.content).decode()
    return (
        f'{{"op":"m","ts_ms":{now_ns // 1_000_000},{source},"transaction":{transaction},'
        f'"message":{{"prefix":{prefix},"content":{content}}}}}'
    ).encode()


def _written_at(now_ns: int) -> str:
    return f'"ts_ms":{now_ns // 1_000_000},"ts_us":{now_ns // 1000},"ts_ns":{now_ns}'
