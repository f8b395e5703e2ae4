"""A table in pieces: ranges of its key, each read by one COPY.

    SELECT columns FROM table WHERE (key) > (after) AND (key) <= (upto) AND (condition)

Keys are texts, as the database itself writes and reads them, and are compared by the database alone, so that
any type and any collation will do. A table without a key is one piece.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from psycopg import sql

from headrace.cdc.database_catalog import PublishedTable
from headrace.config import MIB

CHUNK_BYTES: Final = 8 * MIB
"""About so much of a table's files a chunk is made of: rows of megabytes make chunks of a few."""

Key = tuple[str, ...]
CopiedRow = list[bytes | None]

_ESCAPED: Final = re.compile(rb"\\([0-7]{1,3}|x[0-9A-Fa-f]{1,2}|.)", re.DOTALL)
_LETTERS: Final = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}
_NULL: Final = b"\\N"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Some of a table's rows."""

    table: PublishedTable
    where: str | None
    after: Key | None
    """None: from the first row on."""
    upto: Key | None
    """None: up to the last row."""


def rows_per_chunk(table: PublishedTable, rows_max: int) -> int:
    """How many rows make a chunk, so that it fits into memory."""
    row_bytes = table.size_bytes / max(1, table.estimate)
    return (
        max(1, min(rows_max, int(CHUNK_BYTES / max(1.0, row_bytes))))
        if table.estimate
        else min(rows_max, 1000)
    )


def boundary_query(
    table: PublishedTable, where: str | None, after: Key | None, row_count: int
) -> sql.Composed:
    """The key of the row that is so many rows behind `after`; no row where there are fewer left."""
    key = _columns(table.key)
    return sql.SQL("SELECT {} FROM {}{} ORDER BY {} OFFSET {} LIMIT 1").format(
        sql.SQL(", ").join(sql.SQL("{}::text").format(sql.Identifier(name)) for name in table.key),
        _source(table),
        _where(_conditions(table, where, after, None)),
        key,
        sql.Literal(row_count - 1),
    )


def copy_query(chunk: Chunk) -> sql.Composed:
    """What gives the chunk's rows, in the order of the relation's columns."""
    table = chunk.table
    columns = _columns([column.name for column in table.relation.columns])
    return sql.SQL("COPY (SELECT {} FROM {}{}) TO STDOUT").format(
        columns, _source(table), _where(_conditions(table, chunk.where, chunk.after, chunk.upto))
    )


def row_query(table: PublishedTable, columns: Sequence[str], key: Key) -> sql.Composed:
    """Texts of some columns of one row."""
    return sql.SQL("SELECT {} FROM {}{}").format(
        sql.SQL(", ").join(sql.SQL("{}::text").format(sql.Identifier(name)) for name in columns),
        _source(table),
        _where([_comparison(table, "=", key)]),
    )


def lock_query(tables: Sequence[PublishedTable], *, waits: bool = True) -> sql.Composed:
    """What keeps tables from being altered or rewritten until the transaction ends; nothing else waits."""
    return sql.SQL("LOCK TABLE {} IN ACCESS SHARE MODE{}").format(
        sql.SQL(", ").join(_source(table) for table in tables), sql.SQL("" if waits else " NOWAIT")
    )


def plan_query(table: PublishedTable) -> sql.Composed:
    """What is planned, and not run: that locks the table's indexes until the transaction ends."""
    return sql.SQL("EXPLAIN SELECT FROM {}").format(_source(table))


def parse_rows(block: bytes) -> Iterator[CopiedRow]:
    """Rows of COPY's text format; a block holds whole rows."""
    for line in block.removesuffix(b"\n").split(b"\n"):
        if b"\\" in line:
            yield [None if field == _NULL else _ESCAPED.sub(_unescaped, field) for field in line.split(b"\t")]
        else:
            yield line.split(b"\t")  # type: ignore[misc]  # no null among them


def _unescaped(match: re.Match[bytes]) -> bytes:
    escaped: bytes = match[1]
    if escaped in _LETTERS:
        return _LETTERS[escaped]
    if escaped[:1].isdigit():
        return bytes([int(escaped, 8) & 0xFF])
    return bytes([int(escaped[1:], 16)]) if len(escaped) > 1 else escaped


def _conditions(
    table: PublishedTable, where: str | None, after: Key | None, upto: Key | None
) -> list[sql.Composable]:
    given = [sql.SQL("({})").format(sql.SQL(each)) for each in (table.row_filter, where) if each]
    lower = [] if after is None else [_comparison(table, ">", after)]
    upper = [] if upto is None else [_comparison(table, "<=", upto)]
    return [*lower, *upper, *given]


def _comparison(table: PublishedTable, operator: str, key: Key) -> sql.Composable:
    values = sql.SQL(", ").join(sql.Literal(value) for value in key)
    return sql.SQL("({}) {} ({})").format(_columns(table.key), sql.SQL(operator), values)


def _where(conditions: Sequence[sql.Composable]) -> sql.Composable:
    return sql.SQL(" WHERE {}").format(sql.SQL(" AND ").join(conditions)) if conditions else sql.SQL("")


def _source(table: PublishedTable) -> sql.Composable:
    named = sql.Identifier(table.relation.schema, table.relation.name)
    # Tables that inherit from it are captured by themselves; partitions are captured as it.
    return named if table.is_partitioned else sql.SQL("ONLY {}").format(named)


def _columns(names: Sequence[str]) -> sql.Composable:
    return sql.SQL(", ").join(sql.Identifier(name) for name in names)
