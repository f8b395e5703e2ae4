"""From the messages of whole transactions, in the order of their commits, to records for topics.

    for lsn, message in transactions.feed(lsn, payload):
        made = writer.write(lsn, message, now_ns)
        while isinstance(made, MissingValues):
            made = writer.write(lsn, made.answered(read_row(made)), now_ns)
        publish(made)

Besides the rows (rows.py), there are records for logical messages, for tables that come up or change, for
rows of the outbox, and for where transactions begin and end. A transaction that changes nothing of what is
captured is not told of.
"""

from __future__ import annotations

from headrace.cdc.announced import Announced
from headrace.cdc.catalog import Catalog
from headrace.cdc.described import DescribedTables
from headrace.cdc.envelope import Envelopes, SnapshotPoint, TransactionEvents, as_json
from headrace.cdc.known_keys import KnownKeys
from headrace.cdc.last_values import LastValues, MissingValues
from headrace.cdc.messages import (
    Begin,
    Commit,
    Delete,
    Insert,
    LogicalMessage,
    Message,
    Origin,
    Relation,
    Row,
    RowMessage,
    Truncate,
    Type,
    Update,
)
from headrace.cdc.notices import Notices
from headrace.cdc.outbox import Outbox, OutboxRoute
from headrace.cdc.record import Record
from headrace.cdc.rows import Moment, RowRecords
from headrace.cdc.schema_changes import schema_change, schema_key
from headrace.cdc.selection import Selection
from headrace.cdc.settings import EventSettings
from headrace.cdc.tables import Table
from headrace.errors import ProtocolError

_Made = list[Record] | MissingValues


class ChangeWriter:
    """Writes what a capture publishes. Belongs to one thread.

    Nothing here is needed after a restart but `last_commit_lsn`, the descriptions of tables (`know`), which
    of them are announced, and by which keys they were known.
    """

    def __init__(
        self,
        settings: EventSettings,
        catalog: Catalog,
        *,
        selection: Selection | None = None,
        outbox: Outbox | None = None,
        last_values: LastValues | None = None,
        last_commit_lsn: int | None = None,
        announced: Announced | None = None,
    ) -> None:
        self.notices = Notices()
        self.last_commit_lsn = last_commit_lsn
        """Where the last transaction ended."""
        self.known_keys = catalog if isinstance(catalog, KnownKeys) else KnownKeys(catalog)
        self._settings = settings
        self._tables = DescribedTables(
            settings=settings,
            catalog=self.known_keys,
            selection=selection or Selection(),
            outbox=outbox,
            notices=self.notices,
        )
        self._rows = RowRecords(last_values, tombstones=settings.tombstones)
        self._envelopes = Envelopes(settings)
        self._begin: Begin | None = None
        self._origin: Origin | None = None
        self._events: TransactionEvents | None = None
        self._is_begin_told = False
        self._schema_key = schema_key(settings)
        # A description may be that of a change that is rolled back: it is told when a row shows it.
        self.announced = announced or Announced()
        self._unannounced: set[int] = set()

    def write(self, lsn: int, message: Message, now_ns: int) -> list[Record] | MissingValues:
        """The records that follow from a message, or what has to be known first: nothing was done then."""
        match message:
            case Insert() | Update() | Delete():
                return self._changed(lsn, message, now_ns)
            case Begin():
                self._begun(message)
            case Commit():
                return self._committed(message)
            case Relation():
                self._described(message)
            case Truncate():
                return self._truncated(lsn, message, now_ns)
            case LogicalMessage():
                return self._messaged(message, now_ns)
            case Origin():
                self._origin = message
            case Type():
                self._tables.name_type(message)
            case _:
                raise ProtocolError(f"{message} is about the stream itself: put transactions together first")
        return []

    def know(self, relation: Relation) -> None:
        """Take a table's description as known: for snapshots, and after a restart. Announces nothing.

        What the stream has told, and is to be announced with the next row, still is; and so is what was
        altered since it was announced.
        """
        self._tables.know(relation)
        if relation.oid not in self._unannounced:
            self.announced.take(relation)

    def snapshot_row(self, relation_oid: int, row: Row, point: SnapshotPoint, now_ns: int) -> Record | None:
        """The record of a row that a snapshot has found; None, if its table is not captured.

        The outbox has none: what lies in it has been published, or is about to be.
        """
        table = self._tables.get(relation_oid)
        if not isinstance(table, Table):
            return None
        value = self._envelopes.snapshot_row(table, table.row(row), point, now_ns)
        return Record(table.topic, table.key(row), value)

    def _begun(self, begin: Begin) -> None:
        if self._begin is not None:
            raise ProtocolError(
                f"transaction {begin.xid} began before transaction {self._begin.xid} had ended"
            )
        self._begin = begin

    def _committed(self, commit: Commit) -> list[Record]:
        if self._begin is None:
            raise ProtocolError(f"a transaction ended at {commit.end_lsn} that had not begun")
        records = []
        if self._is_begin_told and self._events is not None:
            records.append(Record(self._settings.transaction_topic, self._events.key, self._events.end()))
        self.last_commit_lsn = commit.end_lsn
        self._begin = self._origin = self._events = None
        self._is_begin_told = False
        return records

    def _described(self, relation: Relation) -> None:
        before = self._tables.relation(relation.oid)
        table = self._tables.describe(relation)
        if isinstance(table, Table) and before != relation:
            self._rows.forget_table(table)
        if self.announced.has(relation):
            self._unannounced.discard(relation.oid)
        elif isinstance(table, Table) and self._settings.schema_changes:
            self._unannounced.add(relation.oid)

    def _changed(self, lsn: int, change: RowMessage, now_ns: int) -> _Made:
        table = self._tables.get(change.relation)
        if table is None:
            return []
        if isinstance(table, OutboxRoute):
            return self._routed(table, change)
        at = Moment(self._transaction(), lsn, now_ns)
        if isinstance(change, Insert):
            made: _Made = self._rows.insert(table, change, at)
        elif isinstance(change, Delete):
            made = self._rows.delete(table, change, at)
        else:
            made = self._rows.update(table, change, at)
        if isinstance(made, MissingValues):
            return made
        return self._told(self._announcements([table], at) + made if self._unannounced else made)

    def _routed(self, route: OutboxRoute, change: RowMessage) -> list[Record]:
        if isinstance(change, Insert):
            return [route.route(change.new)]
        if isinstance(change, Update):
            self.notices.tell(
                "a row of the outbox was updated, which makes no event: insert a new one instead"
            )
        return []

    def _truncated(self, lsn: int, truncate: Truncate, now_ns: int) -> list[Record]:
        at = Moment(self._transaction(), lsn, now_ns)
        described = [self._tables.get(oid) for oid in truncate.relations]
        tables = [table for table in described if isinstance(table, Table)]
        if not tables:
            return []
        if self._settings.partition_count > 1:
            self._tell_of_truncation(tables)
        records = [self._rows.truncate(table, at) for table in tables]
        return self._told(self._announcements(tables, at) + records)

    def _tell_of_truncation(self, tables: list[Table]) -> None:
        names = ", ".join(table.collection for table in tables)
        self.notices.tell(
            f"{names} was truncated, and the event of that is in one of {self._settings.partition_count} "
            "partitions: readers of the others keep rows that are gone. Rebuild what follows the table, and "
            "delete rows from now on (DELETE), or begin anew with --partitions 1"
        )

    def _announcements(self, tables: list[Table], at: Moment) -> list[Record]:
        """What is to be told of tables before their rows."""
        records = []
        for table in tables:
            oid = table.relation.oid
            if oid not in self._unannounced:
                continue
            event = schema_change(
                table,
                is_new=not self.announced.knows(oid),
                settings=self._settings,
                catalog=self._tables.catalog,
                at=at,
            )
            records.append(Record(self._settings.schema_topic, self._schema_key, event))
            self.announced.add(table.relation)
            self._unannounced.discard(oid)
        return records

    def _messaged(self, message: LogicalMessage, now_ns: int) -> list[Record]:
        key = as_json({"prefix": message.prefix})
        if not message.is_transactional:
            return [
                Record(
                    self._settings.message_topic,
                    key,
                    self._envelopes.message(message, self.last_commit_lsn, now_ns),
                )
            ]
        value = self._transaction().message(message, now_ns)
        return self._told([Record(self._settings.message_topic, key, value)])

    def _transaction(self) -> TransactionEvents:
        if self._events is None:
            if self._begin is None:
                raise ProtocolError("a change came outside of any transaction: start replication anew")
            self._events = self._envelopes.transaction(self._begin, self._origin, self.last_commit_lsn)
        return self._events

    def _told(self, records: list[Record]) -> list[Record]:
        """The records, behind that which tells that their transaction has begun, if they are its first."""
        if self._is_begin_told or not self._settings.transactions:
            return records
        self._is_begin_told = True
        events = self._transaction()
        return [Record(self._settings.transaction_topic, events.key, events.begin()), *records]
