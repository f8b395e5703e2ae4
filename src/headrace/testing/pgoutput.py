"""PostgreSQL's side of logical replication: writes the messages that headrace.cdc.pgoutput reads.

So that tests of a capture can make up any transaction, streamed or not, without a server. Written from the
protocol's documentation, not from the decoder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import pack
from typing import Final

from headrace.cdc.catalog import BUILT_IN_TYPES, NO_MODIFIER
from headrace.cdc.messages import UNCHANGED, Relation, RelationColumn, Row

_EPOCH_US: Final = 946_684_800_000_000
_OIDS: Final = {each.name: each.oid for each in BUILT_IN_TYPES.values()}


def table(
    oid: int,
    name: str,
    columns: Mapping[str, str | tuple[int, int]],
    *,
    identified_by: Sequence[str] = ("id",),
    identity: str = "d",
) -> Relation:
    """A table `schema.name` with columns of built-in types, or of numbers of types with their modifiers."""
    schema, _, table_name = name.partition(".")
    described = []
    for column, of_type in columns.items():
        type_oid, modifier = (_OIDS[of_type], NO_MODIFIER) if isinstance(of_type, str) else of_type
        is_identity = identity == "f" or (identity != "n" and column in identified_by)
        described.append(
            RelationColumn(name=column, type_oid=type_oid, modifier=modifier, is_identity=is_identity)
        )
    return Relation(oid=oid, schema=schema, name=table_name, identity=identity, columns=tuple(described))


def begin(*, final_lsn: int, commit_us: int, xid: int) -> bytes:
    """A transaction that has committed."""
    return b"B" + pack(">QqI", final_lsn, commit_us - _EPOCH_US, xid)


def commit(*, commit_lsn: int, end_lsn: int, commit_us: int) -> bytes:
    """The end of it."""
    return b"C" + pack(">BQQq", 0, commit_lsn, end_lsn, commit_us - _EPOCH_US)


def origin(*, commit_lsn: int, name: str) -> bytes:
    """Where it was first made."""
    return b"O" + pack(">Q", commit_lsn) + _text(name)


def relation(described: Relation, xid: int | None = None) -> bytes:
    """A table. `xid` here and below is that of the transaction, in a stream."""
    columns = b"".join(
        pack(">B", column.is_identity) + _text(column.name) + pack(">Ii", column.type_oid, column.modifier)
        for column in described.columns
    )
    names = _text(described.schema) + _text(described.name) + described.identity.encode()
    return b"R" + _xid(xid) + pack(">I", described.oid) + names + pack(">H", len(described.columns)) + columns


def type_(*, oid: int, schema: str, name: str, xid: int | None = None) -> bytes:
    """A type that is not built in."""
    return b"Y" + _xid(xid) + pack(">I", oid) + _text(schema) + _text(name)


def insert(relation_oid: int, new: Row, xid: int | None = None) -> bytes:
    """A row that has come."""
    return b"I" + _xid(xid) + pack(">I", relation_oid) + b"N" + _row(new)


def update(
    relation_oid: int, new: Row, *, key: Row | None = None, old: Row | None = None, xid: int | None = None
) -> bytes:
    """A row that has changed, with its key before, or all of it before, if that is logged."""
    before = b"K" + _row(key) if key is not None else b"O" + _row(old) if old is not None else b""
    return b"U" + _xid(xid) + pack(">I", relation_oid) + before + b"N" + _row(new)


def delete(
    relation_oid: int, *, key: Row | None = None, old: Row | None = None, xid: int | None = None
) -> bytes:
    """A row that has gone: its key, or all of it."""
    before = b"K" + _row(key) if key is not None else b"O" + _row(old or [])
    return b"D" + _xid(xid) + pack(">I", relation_oid) + before


def truncate(
    relation_oids: Sequence[int],
    *,
    cascade: bool = False,
    restart_identity: bool = False,
    xid: int | None = None,
) -> bytes:
    """Tables that were emptied."""
    options = cascade | restart_identity << 1
    return b"T" + _xid(xid) + pack(f">IB{len(relation_oids)}I", len(relation_oids), options, *relation_oids)


def message(
    prefix: str, content: bytes, *, lsn: int, is_transactional: bool = True, xid: int | None = None
) -> bytes:
    """A logical message."""
    fields = pack(">BQ", is_transactional, lsn) + _text(prefix) + pack(">I", len(content)) + content
    return b"M" + _xid(xid) + fields


def stream_start(xid: int, *, is_first: bool) -> bytes:
    """Changes follow of a transaction that still runs."""
    return b"S" + pack(">IB", xid, is_first)


def stream_stop() -> bytes:
    """No more of them for now."""
    return b"E"


def stream_commit(*, xid: int, commit_lsn: int, end_lsn: int, commit_us: int) -> bytes:
    """A transaction that was streamed has committed."""
    return b"c" + pack(">IBQQq", xid, 0, commit_lsn, end_lsn, commit_us - _EPOCH_US)


def stream_abort(xid: int, subxid: int, *, is_parallel: bool = False) -> bytes:
    """It, or a part of it, was rolled back."""
    return b"A" + pack(">II", xid, subxid) + (pack(">Qq", 1, 1) if is_parallel else b"")


def _xid(xid: int | None) -> bytes:
    return b"" if xid is None else pack(">I", xid)


def _text(text: str) -> bytes:
    return text.encode() + b"\0"


def _row(row: Row) -> bytes:
    columns = []
    for value in row:
        if isinstance(value, bytes):
            columns.append(b"t" + pack(">I", len(value)) + value)
        else:
            columns.append(b"u" if value is UNCHANGED else b"n")
    return pack(">H", len(row)) + b"".join(columns)
