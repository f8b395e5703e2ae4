"""What a capture knows of itself: the last record of its own topic, from which it goes on after a crash.

The topic `<prefix>.capture` is compacted and has one partition and one key. Every transaction of the
publisher writes its events and this record, or neither; so the last committed record says exactly what is in
the topics:

    {"version": 1, "slot": "headrace_shop", "system": "7394...", "lsn": "0/1A2B3C8", "event_count": 4711,
     "phase": "streaming", "tables": [{"schema": "public", "table": "orders", "where": null,
                                       "after": ["1000"], "row_count": 1000, "estimate": 50000,
                                       "is_requested": false}],
     "requests": [], "owns_publication": true, "announced": {"16385": "5f70bf18"},
     "keys": {"16385": [["id"]]}}

Phases
- `making the slot`    written before the slot is made: one that is found in this phase was never read from
- `streaming`          everything before `lsn` is published, and of `tables` the rows up to the key `after`
- `done`               a snapshot only, which is complete

`tables` are those whose snapshot is not complete. Their chunks are published in the order of their keys, so
that one key says what is there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

from headrace.cdc.positions import format_lsn, parse_lsn
from headrace.errors import CaptureFailed

VERSION: Final = 1
REQUESTS_KEPT: Final = 16


class Phase(Enum):
    """How far a capture has come."""

    MAKING_SLOT = "making the slot"
    STREAMING = "streaming"
    DONE = "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSnapshot:
    """A table whose rows are still to be published, and how many were."""

    schema: str
    table: str
    where: str | None = None
    """Which of its rows, as an SQL condition; None: all."""
    after: tuple[str, ...] | None = None
    """Rows up to this key are published; None: none yet."""
    row_count: int = 0
    estimate: int = 0
    """How many rows the table has, by the database's own guess."""
    is_requested: bool = False
    """Whether somebody has asked for it while changes were streamed; else it belongs to the beginning."""

    @property
    def name(self) -> str:
        """Schema and table."""
        return f"{self.schema}.{self.table}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureState:
    """What is published, and what of snapshots is still to come."""

    slot: str
    system: str
    """The database server's own number."""
    phase: Phase
    lsn: int = 0
    event_count: int = 0
    """How many records have been published since the first start, this topic's own excepted."""
    tables: tuple[TableSnapshot, ...] = ()
    requests: tuple[str, ...] = ()
    """The last requests for further snapshots that were taken in, so that none is taken in twice."""
    owns_publication: bool = False
    """Whether the capture has made its publication, or is about to; else it is another's, and left alone."""
    announced: Mapping[int, str] | None = None
    """A digest of each table's description that is on the topic of schemas, or needs not be."""
    keys: Mapping[int, tuple[tuple[str, ...], ...]] | None = None
    """The primary keys that tables have had whose stream does not tell them, the last one at the end."""

    def advanced(self, lsn: int, event_count: int) -> CaptureState:
        """After more events, up to a position, which never goes back."""
        return replace(self, lsn=max(self.lsn, lsn), event_count=self.event_count + event_count)

    def with_chunk(self, after: tuple[str, ...] | None, row_count: int) -> CaptureState:
        """After a chunk of the first table's rows; `after` is None where that was its last."""
        first, *others = self.tables
        if after is None:
            return replace(self, tables=tuple(others))
        more = replace(first, after=after, row_count=first.row_count + row_count)
        return replace(self, tables=(more, *others))

    def without_first_table(self) -> CaptureState:
        """After the snapshot of the first table was given up."""
        return replace(self, tables=self.tables[1:])

    def with_request(self, request: str, tables: tuple[TableSnapshot, ...]) -> CaptureState:
        """After more snapshots were asked for."""
        if request in self.requests:
            return self
        requests = (*self.requests, request)[-REQUESTS_KEPT:]
        asked = tuple(replace(each, is_requested=True) for each in tables)
        return replace(self, tables=self.tables + asked, requests=requests)


def to_json(state: CaptureState) -> bytes:
    """As the topic has it."""
    tables = [
        {
            "schema": each.schema,
            "table": each.table,
            "where": each.where,
            "after": each.after,
            "row_count": each.row_count,
            "estimate": each.estimate,
            "is_requested": each.is_requested,
        }
        for each in state.tables
    ]
    return json.dumps(
        {
            "version": VERSION,
            "slot": state.slot,
            "system": state.system,
            "phase": state.phase.value,
            "lsn": format_lsn(state.lsn),
            "event_count": state.event_count,
            "tables": tables,
            "requests": state.requests,
            "owns_publication": state.owns_publication,
            "announced": state.announced,
            "keys": state.keys,
        },
        ensure_ascii=False,
        separators=(",", ":"),
    ).encode()


def from_json(text: bytes, topic: str) -> CaptureState:
    """Read it back. Raises CaptureFailed where it is not ours."""
    try:
        told: dict[str, Any] = json.loads(text)
        if told["version"] != VERSION:
            raise CaptureFailed(
                f"topic {topic} was written by a newer Headrace (version {told['version']}): use that one"
            )
        return CaptureState(
            slot=told["slot"],
            system=told["system"],
            phase=Phase(told["phase"]),
            lsn=parse_lsn(told["lsn"]),
            event_count=told["event_count"],
            tables=tuple(_table(each) for each in told["tables"]),
            requests=tuple(told["requests"]),
            owns_publication=told.get("owns_publication", False),
            announced=_announced(told.get("announced")),
            keys=_keys(told.get("keys")),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise CaptureFailed(
            f"the last record of topic {topic} is none that a capture writes ({error!r}): nobody else may "
            "write there. `headrace capture start NAME --new-snapshot` begins anew"
        ) from error


def _announced(told: dict[str, str] | None) -> dict[int, str] | None:
    return None if told is None else {int(oid): digest for oid, digest in told.items()}


def _keys(told: dict[str, list[list[str]]] | None) -> dict[int, tuple[tuple[str, ...], ...]] | None:
    if told is None:
        return None
    return {int(oid): tuple(tuple(key) for key in keys) for oid, keys in told.items()}


def _table(told: dict[str, Any]) -> TableSnapshot:
    after = told["after"]
    return TableSnapshot(**{**told, "after": None if after is None else tuple(after)})
