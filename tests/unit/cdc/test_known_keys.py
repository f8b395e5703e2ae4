"""Rows that are older than what the database says of their table have the key of then."""

from __future__ import annotations

import pytest

from headrace.cdc.catalog import KnownCatalog, PgType, key_columns
from headrace.cdc.known_keys import KEYS_KEPT, KnownKeys
from headrace.cdc.messages import Relation
from headrace.errors import CaptureFailed
from headrace.testing import pgoutput as pg


class Database:
    """A table whose key is what the test says; None: there is none of its number any more."""

    def __init__(self, *key: str) -> None:
        self.key: tuple[str, ...] | None = key

    def type_of(self, oid: int) -> PgType | None:
        return KnownCatalog().type_of(oid)

    def primary_key_of(self, relation: Relation) -> tuple[str, ...] | None:  # noqa: ARG002  # there is one
        return self.key


def table(*columns: str, identity: str = "f") -> Relation:
    return pg.table(
        7, "public.orders", dict.fromkeys(columns, "int4"), identity=identity, identified_by=("n",)
    )


def key_of(relation: Relation, keys: KnownKeys) -> tuple[str, ...]:
    return tuple(column.name for column in key_columns(relation, keys))


def test_a_row_from_before_its_key_was_renamed_has_the_key_of_then() -> None:
    database = Database("id")
    keys = KnownKeys(database)
    keys.learn(table("id", "n"))
    database.key = ("number",)
    assert key_of(table("id", "n"), keys) == ("id",)
    assert key_of(table("number", "n"), keys) == ("number",)
    assert key_of(table("id", "n"), keys) == ("id",)


def test_keys_are_known_after_a_restart_that_finds_the_table_renamed() -> None:
    before = KnownKeys(Database("id"))
    before.learn(table("id", "n"))
    keys = KnownKeys(Database("number"), before.kept)
    keys.learn(table("number", "n"))
    assert key_of(table("id", "n"), keys) == ("id",)


def test_a_row_of_a_table_that_is_gone_has_the_key_of_then() -> None:
    database = Database("id")
    keys = KnownKeys(database)
    assert key_of(table("id", "n"), keys) == ("id",)
    database.key = None
    assert key_of(table("id", "n"), keys) == ("id",)


def test_a_row_of_a_table_that_is_gone_and_was_never_known_has_no_key() -> None:
    database = Database()
    database.key = None
    assert key_of(table("id", "n"), KnownKeys(database)) == ()


def test_a_row_from_before_its_table_had_a_key_has_none() -> None:
    database = Database()
    keys = KnownKeys(database)
    keys.learn(table("n"))
    database.key = ("id",)
    keys.learn(table("n", "id"))
    assert key_of(table("n"), keys) == ()
    assert key_of(table("n", "id"), keys) == ("id",)


def test_a_table_that_is_published_without_its_key_has_none() -> None:
    keys = KnownKeys(Database("id"))
    keys.learn(table("n", identity="n"))
    assert key_of(table("n", identity="n"), keys) == ()


def test_what_a_row_is_known_by_stops_the_capture_where_it_can_not_be_told() -> None:
    with pytest.raises(
        CaptureFailed, match=r"id, n, while the table's primary key is number.*--new-snapshot"
    ):
        key_of(table("id", "n"), KnownKeys(Database("number")))


def test_an_index_that_is_the_identity_serves_the_key_of_then_as_well() -> None:
    database = Database("n")
    keys = KnownKeys(database)
    keys.learn(table("id", "n", identity="i"))
    database.key = ("m",)
    assert key_of(table("id", "n", identity="i"), keys) == ("n",)


def test_where_the_stream_tells_the_key_nothing_is_kept() -> None:
    keys = KnownKeys(Database("n"))
    keys.learn(table("id", "n", identity="d"))
    assert key_of(table("id", "n", identity="d"), keys) == ("n",)
    assert keys.kept == {}


def test_only_the_last_keys_are_kept() -> None:
    database = Database()
    keys = KnownKeys(database)
    for number in range(2 * KEYS_KEPT):
        database.key = (f"key{number}",)
        keys.learn(table(f"key{number}"))
    assert keys.kept == {7: tuple((f"key{number}",) for number in range(KEYS_KEPT, 2 * KEYS_KEPT))}
