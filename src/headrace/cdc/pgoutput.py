"""The messages of pgoutput, PostgreSQL's logical replication protocol, versions 1 to 4.

A message is one byte for its kind and the fields of that kind, all numbers big-endian, texts ended by a zero:

    B begin            final_lsn u64, commit time i64, xid u32
    C commit           flags u8, commit_lsn u64, end_lsn u64, commit time i64
    O origin           commit_lsn u64, name
    R relation      *  oid u32, schema, name, identity u8, columns u16: flags u8, name, type u32, modifier i32
    Y type          *  oid u32, schema, name
    I insert        *  relation u32, 'N', row
    U update        *  relation u32, ['K' or 'O', row,] 'N', row
    D delete        *  relation u32, 'K' or 'O', row
    T truncate      *  relations u32, options u8, relation u32 each
    M message       *  flags u8, lsn u64, prefix, content: length u32 and bytes
    S stream start     xid u32, first u8
    E stream stop
    c stream commit    xid u32, flags u8, commit_lsn u64, end_lsn u64, commit time i64
    A stream abort     xid u32, subxid u32, [abort_lsn u64, abort time i64 where streaming is parallel]

    row = columns u16, each: 'n' for null | 'u' for an unchanged TOAST value | 't', length u32, text

In between a stream start and its stop, those marked * have the xid u32 of their (sub)transaction in front;
the decoder skips it, as whoever takes such messages apart by transaction reads it without decoding the
rest. Times are microseconds since 2000.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct, error
from typing import Final, NoReturn

from headrace.cdc.messages import (
    UNCHANGED,
    Begin,
    Commit,
    Delete,
    Insert,
    LogicalMessage,
    Message,
    Origin,
    Relation,
    RelationColumn,
    Row,
    StreamAbort,
    StreamCommit,
    StreamStart,
    StreamStop,
    Truncate,
    Type,
    Update,
)
from headrace.errors import ProtocolError

_U16: Final = Struct(">H").unpack_from
_U32: Final = Struct(">I").unpack_from
_U64: Final = Struct(">Q").unpack_from
_RELATION_AND_KIND: Final = Struct(">IB").unpack_from
_BEGIN: Final = Struct(">QqI").unpack_from
_COMMIT: Final = Struct(">BQQq").unpack_from
_COLUMN: Final = Struct(">Ii").unpack_from
_MESSAGE: Final = Struct(">BQ").unpack_from
_STREAM_START: Final = Struct(">IB").unpack_from
_STREAM_COMMIT: Final = Struct(">IBQQq").unpack_from
_STREAM_ABORT: Final = Struct(">II").unpack_from

_EPOCH_US: Final = 946_684_800_000_000
"""From 1970 to 2000, where PostgreSQL's times begin."""
_TEXT, _NULL, _UNCHANGED, _BINARY = b"tnub"
_KEY, _OLD, _NEW = b"KON"
_INSERT, _UPDATE, _DELETE = b"IUD"
_ABORT_BYTES: Final = 9
_ABORT_IN_PARALLEL_BYTES: Final = 25
_IN_STREAM: Final = frozenset(b"RYIUDTM")
_TWO_PHASE: Final = frozenset(b"bPKrp")
NAMES: Final = {
    ord("B"): "Begin",
    ord("C"): "Commit",
    ord("O"): "Origin",
    ord("R"): "Relation",
    ord("Y"): "Type",
    ord("I"): "Insert",
    ord("U"): "Update",
    ord("D"): "Delete",
    ord("T"): "Truncate",
    ord("M"): "Message",
    ord("S"): "StreamStart",
    ord("E"): "StreamStop",
    ord("c"): "StreamCommit",
    ord("A"): "StreamAbort",
}
"""What the kinds of message are called."""


class _Malformed(Exception):
    """Where, and why, a message can't be read."""

    def __init__(self, position: int, why: str) -> None:
        super().__init__(why)
        self.position = position


def decode(payload: bytes | memoryview, *, streaming: bool) -> Message:
    """The message that the payload of one XLogData holds.

    `streaming` says whether it came in between a stream start and its stop.
    """
    data = payload if type(payload) is bytes else bytes(payload)
    if not data:
        raise ProtocolError("an empty message of pgoutput: ask for the publication's changes with pgoutput")
    kind = data[0]
    position = 5 if streaming and kind in _IN_STREAM else 1
    try:
        if kind == _INSERT:
            return _insert(data, position)
        if kind == _UPDATE:
            return _update(data, position)
        if kind == _DELETE:
            return _delete(data, position)
        return _OTHERS[kind](data, position)
    except _Malformed as malformed:
        _refuse(data, malformed.position, str(malformed))
    except (IndexError, UnicodeDecodeError, error) as cause:
        _refuse(data, position, str(cause))
    except KeyError:
        _refuse(data, 0, _unknown(kind))


def xid_in_stream(payload: bytes) -> int | None:
    """Of which (sub)transaction a message is that came between a stream start and its stop, if it says so."""
    if payload[0] not in _IN_STREAM:
        return None
    if len(payload) < 5:
        _refuse(payload, 1, "it ends within its transaction's number")
    xid: int = _U32(payload, 1)[0]
    return xid


def _refuse(data: bytes, position: int, why: str) -> NoReturn:
    name = NAMES.get(data[0], "of kind " + repr(chr(data[0])))
    raise ProtocolError(
        f"a message {name} of pgoutput, {len(data)} bytes long, can't be read at byte {position}: {why}; it "
        f"begins with {data[:24].hex()}"
    ) from None


def _unknown(kind: int) -> str:
    if kind in _TWO_PHASE:
        return "prepared transactions are not understood: create the slot without two_phase"
    return "there is no such kind in versions 1 to 4 of the protocol"


def _row(data: bytes, position: int) -> tuple[Row, int]:
    values: Row = []
    append = values.append
    try:
        count: int = _U16(data, position)[0]
        position += 2
        for _ in range(count):
            kind = data[position]
            if kind == _TEXT:
                start = position + 5
                position = start + _U32(data, position + 1)[0]
                append(data[start:position])
            elif kind == _NULL:
                append(None)
                position += 1
            elif kind == _UNCHANGED:
                append(UNCHANGED)
                position += 1
            else:
                _refuse_column(position, kind)
    except (IndexError, error):
        raise _Malformed(position, "it ends within a row") from None
    return values, position


def _refuse_column(position: int, kind: int) -> NoReturn:
    if kind == _BINARY:
        raise _Malformed(position, "a column is in binary form: ask for changes without binary")
    raise _Malformed(position, f"{chr(kind)!r} is no kind of column")


def _end(data: bytes, position: int) -> None:
    if position > len(data):
        raise _Malformed(len(data), f"it should end at byte {position}")
    if position < len(data):
        raise _Malformed(position, f"{len(data) - position} bytes follow where it should end")


def _insert(data: bytes, position: int) -> Insert:
    relation, part = _RELATION_AND_KIND(data, position)
    if part != _NEW:
        raise _Malformed(position + 4, "no new row follows")
    new, position = _row(data, position + 5)
    _end(data, position)
    return Insert(relation, new)


def _update(data: bytes, position: int) -> Update:
    relation, part = _RELATION_AND_KIND(data, position)
    position += 5
    old: Row | None = None
    is_old_whole = part == _OLD
    if part in {_KEY, _OLD}:
        old, position = _row(data, position)
        part = data[position]
        position += 1
    if part != _NEW:
        raise _Malformed(position - 1, "no new row follows")
    new, position = _row(data, position)
    _end(data, position)
    return Update(relation, old, is_old_whole, new)


def _delete(data: bytes, position: int) -> Delete:
    relation, part = _RELATION_AND_KIND(data, position)
    if part not in {_KEY, _OLD}:
        raise _Malformed(position + 4, "no old row follows")
    old, position = _row(data, position + 5)
    _end(data, position)
    return Delete(relation, old, part == _OLD)


def _text(data: bytes, position: int) -> tuple[str, int]:
    end = data.find(0, position)
    if end < 0:
        raise _Malformed(position, "a text has no end")
    return data[position:end].decode(), end + 1


def _begin(data: bytes, position: int) -> Begin:
    final_lsn, commit_us, xid = _BEGIN(data, position)
    _end(data, position + 20)
    return Begin(final_lsn=final_lsn, commit_us=commit_us + _EPOCH_US, xid=xid)


def _commit(data: bytes, position: int) -> Commit:
    _, commit_lsn, end_lsn, commit_us = _COMMIT(data, position)
    _end(data, position + 25)
    return Commit(commit_lsn=commit_lsn, end_lsn=end_lsn, commit_us=commit_us + _EPOCH_US)


def _origin(data: bytes, position: int) -> Origin:
    (commit_lsn,) = _U64(data, position)
    name, position = _text(data, position + 8)
    _end(data, position)
    return Origin(commit_lsn=commit_lsn, name=name)


def _relation(data: bytes, position: int) -> Relation:
    (oid,) = _U32(data, position)
    schema, position = _text(data, position + 4)
    name, position = _text(data, position)
    identity = chr(data[position])
    (count,) = _U16(data, position + 1)
    position += 3
    columns = []
    for _ in range(count):
        column, position = _column(data, position)
        columns.append(column)
    _end(data, position)
    # What lies in pg_catalog comes without the name of its schema.
    return Relation(
        oid=oid, schema=schema or "pg_catalog", name=name, identity=identity, columns=tuple(columns)
    )


def _column(data: bytes, position: int) -> tuple[RelationColumn, int]:
    is_identity = bool(data[position] & 1)
    name, position = _text(data, position + 1)
    type_oid, modifier = _COLUMN(data, position)
    column = RelationColumn(name=name, type_oid=type_oid, modifier=modifier, is_identity=is_identity)
    return column, position + 8


def _type(data: bytes, position: int) -> Type:
    (oid,) = _U32(data, position)
    schema, position = _text(data, position + 4)
    name, position = _text(data, position)
    _end(data, position)
    return Type(oid=oid, schema=schema or "pg_catalog", name=name)


def _truncate(data: bytes, position: int) -> Truncate:
    count, options = _RELATION_AND_KIND(data, position)
    position += 5
    _end(data, position + 4 * count)
    relations = Struct(f">{count}I").unpack_from(data, position)
    return Truncate(relations=relations, cascade=bool(options & 1), restart_identity=bool(options & 2))


def _message(data: bytes, position: int) -> LogicalMessage:
    flags, lsn = _MESSAGE(data, position)
    prefix, position = _text(data, position + 9)
    (length,) = _U32(data, position)
    _end(data, position + 4 + length)
    content = data[position + 4 :]
    return LogicalMessage(is_transactional=bool(flags & 1), lsn=lsn, prefix=prefix, content=content)


def _stream_start(data: bytes, position: int) -> StreamStart:
    xid, is_first = _STREAM_START(data, position)
    _end(data, position + 5)
    return StreamStart(xid=xid, is_first=bool(is_first))


def _stream_stop(data: bytes, position: int) -> StreamStop:
    _end(data, position)
    return StreamStop()


def _stream_commit(data: bytes, position: int) -> StreamCommit:
    xid, _, commit_lsn, end_lsn, commit_us = _STREAM_COMMIT(data, position)
    _end(data, position + 29)
    return StreamCommit(xid=xid, commit_lsn=commit_lsn, end_lsn=end_lsn, commit_us=commit_us + _EPOCH_US)


def _stream_abort(data: bytes, position: int) -> StreamAbort:
    xid, subxid = _STREAM_ABORT(data, position)
    _end(data, _ABORT_IN_PARALLEL_BYTES if len(data) == _ABORT_IN_PARALLEL_BYTES else _ABORT_BYTES)
    return StreamAbort(xid=xid, subxid=subxid)


_OTHERS: Final[dict[int, Callable[[bytes, int], Message]]] = {
    ord("B"): _begin,
    ord("C"): _commit,
    ord("O"): _origin,
    ord("R"): _relation,
    ord("Y"): _type,
    ord("T"): _truncate,
    ord("M"): _message,
    ord("S"): _stream_start,
    ord("E"): _stream_stop,
    ord("c"): _stream_commit,
    ord("A"): _stream_abort,
}
