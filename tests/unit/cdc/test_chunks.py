"""Rows of COPY's text format, and the queries that give chunks."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from headrace.cdc.chunks import Chunk, boundary_query, copy_query, parse_rows, rows_per_chunk
from headrace.cdc.database_catalog import PublishedTable
from headrace.cdc.messages import Relation, RelationColumn

ESCAPES = {8: b"\\b", 9: b"\\t", 10: b"\\n", 11: b"\\v", 12: b"\\f", 13: b"\\r", 92: b"\\\\"}

values = st.none() | st.binary(max_size=8).filter(lambda value: 0 not in value)


def written(rows: list[list[bytes | None]]) -> bytes:
    """As PostgreSQL's documentation describes the format, byte by byte."""

    def field(value: bytes | None) -> bytes:
        if value is None:
            return b"\\N"
        return b"".join(ESCAPES.get(byte, bytes([byte])) for byte in value)

    return b"".join(b"\t".join(field(value) for value in row) + b"\n" for row in rows)


@given(st.integers(1, 4).flatmap(lambda n: st.lists(st.lists(values, min_size=n, max_size=n), min_size=1)))
@example([[b"\\N", None, b"", b"a\\tb"]])
@example([[b""]])
@example([[b"\x85\x1c\x0b\r"]])
def test_copied_rows_are_read_back(rows: list[list[bytes | None]]) -> None:
    assert list(parse_rows(written(rows))) == rows


def test_escapes_that_the_server_does_not_write_itself_are_read_all_the_same() -> None:
    assert list(parse_rows(b"\\x41\\102\\q\n")) == [[b"ABq"]]


def table(
    *, key: tuple[str, ...] = ("a", "b"), is_partitioned: bool = False, **more: int | str
) -> PublishedTable:
    columns = tuple(
        RelationColumn(name=name, type_oid=23, modifier=-1, is_identity=name in key)
        for name in ("a", "b", "c d")
    )
    relation = Relation(oid=1, schema="public", name='or"ders', identity="d", columns=columns)
    settings: dict[str, Any] = {"row_filter": None, "estimate": 0, "size_bytes": 0, **more}
    return PublishedTable(
        publication="p", relation=relation, key=key, is_partitioned=is_partitioned, **settings
    )


def test_a_chunk_is_a_range_of_keys_that_the_database_compares() -> None:
    chunk = Chunk(table=table(), where="a % 2 = 0", after=("1", "x'y"), upto=("2", "z"))
    assert copy_query(chunk).as_string(None) == (
        'COPY (SELECT "a", "b", "c d" FROM ONLY "public"."or""ders" WHERE ("a", "b") > (\'1\', \'x\'\'y\') '
        "AND (\"a\", \"b\") <= ('2', 'z') AND (a % 2 = 0)) TO STDOUT"
    )


def test_a_table_without_a_key_is_one_chunk_and_partitions_count_as_their_table() -> None:
    chunk = Chunk(
        table=table(key=(), is_partitioned=True, row_filter="a > 0"), where=None, after=None, upto=None
    )
    assert copy_query(chunk).as_string(None) == (
        'COPY (SELECT "a", "b", "c d" FROM "public"."or""ders" WHERE (a > 0)) TO STDOUT'
    )


def test_a_chunk_ends_with_the_row_that_is_so_many_rows_on() -> None:
    assert boundary_query(table(), None, ("1", "x"), 10).as_string(None) == (
        'SELECT "a"::text, "b"::text FROM ONLY "public"."or""ders" WHERE ("a", "b") > (\'1\', \'x\') '
        'ORDER BY "a", "b" OFFSET 9 LIMIT 1'
    )


def test_large_rows_make_chunks_of_few() -> None:
    assert rows_per_chunk(table(estimate=1_000_000, size_bytes=50_000_000), 10_000) == 10_000
    assert rows_per_chunk(table(estimate=1000, size_bytes=1000 * 2**20), 10_000) == 8
    assert rows_per_chunk(table(estimate=10, size_bytes=10 * 2**30), 10_000) == 1
    assert rows_per_chunk(table(), 10_000) == 1000
