"""What PostgreSQL's logical replication tells, one value for each kind of message.

Rows are lists of the columns' texts: nothing is made per column, as a capture spends most of its time here.
The messages that come once per row are tuples for the same reason. Times are microseconds since 1970.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple


class Absent(Enum):
    """Why a column has no value in a row, though it has one in the table."""

    UNCHANGED = "unchanged"
    """It lies outside of the row (TOAST) and was not written."""
    GONE = "gone"
    """The same, and the row was no longer there to be asked."""


UNCHANGED: Final = Absent.UNCHANGED
GONE: Final = Absent.GONE
Value = bytes | None | Absent
"""The text of a value, nothing for NULL, or why there is none."""
Row = list[Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """A transaction that has committed; all up to its Commit is part of it."""

    final_lsn: int
    commit_us: int
    xid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """The end of a transaction."""

    commit_lsn: int
    end_lsn: int
    commit_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The transaction was first made on another server, and was replicated from there."""

    commit_lsn: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RelationColumn:
    """A column, as rows that follow have it."""

    name: str
    type_oid: int
    modifier: int
    is_identity: bool
    """Whether it is part of what identifies old rows: of the key, or any where the identity is full."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """A table, as rows that follow have it. Sent before its first row, and again whenever it has changed."""

    oid: int
    schema: str
    name: str
    identity: str
    """How old rows are told apart: d by the primary key, i by an index, f by all columns, n not at all."""
    columns: tuple[RelationColumn, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Type:
    """The name of a type that is not built in. Sent before the first relation that has it."""

    oid: int
    schema: str
    name: str


class Insert(NamedTuple):
    """A row that has come."""

    relation: int
    new: Row


class Update(NamedTuple):
    """A row that has changed. `old` is its identity before, if that changed, or all of it, if logged."""

    relation: int
    old: Row | None
    is_old_whole: bool
    new: Row


class Delete(NamedTuple):
    """A row that has gone: its identity, or all of it, if that is logged."""

    relation: int
    old: Row
    is_old_whole: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncate:
    """Tables that were emptied at once."""

    relations: tuple[int, ...]
    cascade: bool
    restart_identity: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LogicalMessage:
    """What `pg_logical_emit_message` wrote into the log."""

    is_transactional: bool
    lsn: int
    prefix: str
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStart:
    """Changes follow of a transaction that has not committed yet."""

    xid: int
    is_first: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStop:
    """No more changes of it for now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamCommit:
    """A transaction that was streamed has committed."""

    xid: int
    commit_lsn: int
    end_lsn: int
    commit_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamAbort:
    """A transaction that was streamed, or a part of it, was rolled back."""

    xid: int
    subxid: int


RowMessage = Insert | Update | Delete
StreamMessage = StreamStart | StreamStop | StreamCommit | StreamAbort
Message = Begin | Commit | Origin | Relation | Type | RowMessage | Truncate | LogicalMessage | StreamMessage
