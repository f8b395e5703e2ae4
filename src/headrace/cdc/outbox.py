"""The outbox: a table whose rows are events for topics of their own, written in the transaction that they
tell of.

An application inserts a row into the outbox in the same transaction as its other changes, and so never
publishes what was rolled back, nor forgets to publish what was committed. The columns are those of
Debezium's outbox event router, and so is what becomes of them:

| column | becomes |
|---|---|
| `aggregatetype` | the topic, `outbox.event.<aggregatetype>` |
| `aggregateid` | the key |
| `payload` | the value, as it is; a null one makes a tombstone |
| `id` | the header `id`, by which consumers recognise an event that they have had |
| `type` | the header `type` |
| `headers` | if there is such a column: a JSON object, each field of it a header |

Which tables and columns are captured (selection.py) does not concern the outbox: what it holds is meant to
be published. Rows may be deleted at once, as deletes concern nobody: the event is in the log. An update
makes no event; it is told as a mistake, since an event can't be changed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from json import dumps, loads
from typing import Final

from headrace.cdc.messages import Relation, Row
from headrace.cdc.record import Record
from headrace.cdc.values.scalars import bytes_of
from headrace.config.checks import check_topic_name
from headrace.errors import ConfigError

ROUTE: Final = "{route}"
OUTBOX_TOPICS: Final = "outbox.event."
"""What the topics of an outbox begin with."""
_NOT_IN_TOPICS: Final = re.compile(r"[^A-Za-z0-9._-]")
_BYTEA_OID: Final = 17


@dataclass(frozen=True, slots=True, kw_only=True)
class Outbox:
    """Which table is the outbox, and what its columns are called."""

    table: str = "public.outbox"
    topic: str = f"{OUTBOX_TOPICS}{ROUTE}"
    """`{route}` stands for what the route column says."""
    route_column: str = "aggregatetype"
    key_column: str = "aggregateid"
    payload_column: str = "payload"
    id_column: str = "id"
    type_column: str = "type"
    headers_column: str = "headers"
    """May be missing in the table, and so may the type."""

    def __post_init__(self) -> None:
        if "." not in self.table:
            raise ConfigError(f"the outbox {self.table!r} has no schema: write it like public.outbox")
        check_topic_name(self.topic.replace(ROUTE, "x"))

    def is_table(self, relation: Relation) -> bool:
        """Whether the table is the outbox."""
        return f"{relation.schema}.{relation.name}" == self.table


class OutboxRoute:
    """Turns rows of the outbox, as it is described now, into records."""

    def __init__(self, outbox: Outbox, relation: Relation, notify: Callable[[str], None]) -> None:
        self._outbox = outbox
        self._notify = notify
        self._places = {column.name: place for place, column in enumerate(relation.columns)}
        needed = (outbox.route_column, outbox.key_column, outbox.payload_column, outbox.id_column)
        missing = [name for name in needed if name not in self._places]
        if missing:
            raise ConfigError(
                f"the outbox {outbox.table} has no column {', '.join(missing)}: add it, or name another"
            )
        payload = relation.columns[self._places[outbox.payload_column]]
        self._is_payload_binary = payload.type_oid == _BYTEA_OID

    def route(self, row: Row) -> Record:
        """The record of a row that was inserted."""
        outbox = self._outbox
        headers = [("id", self._text(row, outbox.id_column) or b"")]
        type_ = self._text(row, outbox.type_column)
        if type_ is not None:
            headers.append(("type", type_))
        payload = self._text(row, outbox.payload_column)
        return Record(
            topic=self._topic(row),
            key=self._text(row, outbox.key_column),
            value=bytes_of(payload) if payload is not None and self._is_payload_binary else payload,
            headers=(*headers, *self._own_headers(row)),
        )

    def _topic(self, row: Row) -> str:
        route = self._text(row, self._outbox.route_column)
        name = "null" if route is None else _NOT_IN_TOPICS.sub("_", route.decode(errors="replace"))
        return check_topic_name(self._outbox.topic.replace(ROUTE, name))

    def _own_headers(self, row: Row) -> list[tuple[str, bytes]]:
        written = self._text(row, self._outbox.headers_column)
        if written is None:
            return []
        try:
            fields = loads(written)
        except ValueError:
            fields = None
        if not isinstance(fields, dict):
            self._notify(
                f"an event of the outbox {self._outbox.table} goes without its headers, no JSON object"
            )
            return []
        return [(name, _header(value)) for name, value in fields.items()]

    def _text(self, row: Row, column: str) -> bytes | None:
        place = self._places.get(column)
        value = None if place is None else row[place]
        return value if isinstance(value, bytes) else None


def _header(value: object) -> bytes:
    return value.encode() if isinstance(value, str) else dumps(value, ensure_ascii=False).encode()
