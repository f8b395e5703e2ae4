from __future__ import annotations

import hashlib
import hmac
import json

import pytest

from headrace.cdc.catalog import KnownCatalog
from headrace.cdc.messages import UNCHANGED, Begin, Delete, Insert, Relation, Truncate, Update
from headrace.cdc.record import Record
from headrace.cdc.selection import Selection
from headrace.cdc.settings import EventSettings
from headrace.cdc.writer import ChangeWriter
from headrace.errors import ConfigError
from headrace.testing import pgoutput as pg

SECRET = b"sixteen bytes or more"
PEOPLE = pg.table(1, "public.people", {"id": "int4", "email": "text", "name": "text", "age": "int4"})
LOGS = pg.table(2, "audit.logs", {"id": "int4", "line": "text"})
ANNA = [b"1", b"anna@example.org", b"Anna", b"40"]
EMAIL_HASH = hmac.digest(SECRET, b"anna@example.org", hashlib.sha256).hex()


def writer_of(selection: Selection, *tables: Relation) -> ChangeWriter:
    settings = EventSettings(prefix="shop", database="shop", version="1", transactions=False)
    writer = ChangeWriter(settings, KnownCatalog(), selection=selection)
    for table in tables or (PEOPLE, LOGS):
        writer.know(table)
    writer.write(0, Begin(final_lsn=1, commit_us=1, xid=1), 0)
    return writer


def after(records: object) -> dict[str, object]:
    assert isinstance(records, list)
    record = records[-1]
    assert isinstance(record, Record)
    row: dict[str, object] = json.loads(record.value or b"")["after"]
    return row


@pytest.mark.parametrize(
    ("selection", "is_people", "is_logs"),
    [
        (Selection(), True, True),
        (Selection(include_tables=("public.*",)), True, False),
        (Selection(exclude_tables=("audit.log?",)), True, False),
        (Selection(include_tables=("*.*",), exclude_tables=("public.people",)), False, True),
        (Selection(include_tables=("public.person",)), False, False),
    ],
)
def test_only_tables_that_are_selected_are_captured(
    selection: Selection, is_people: bool, is_logs: bool
) -> None:
    writer = writer_of(selection)
    assert bool(writer.write(1, Insert(1, [*ANNA]), 0)) == is_people
    assert bool(writer.write(1, Insert(2, [b"1", b"x"]), 0)) == is_logs
    truncated = writer.write(1, Truncate(relations=(1, 2), cascade=False, restart_identity=False), 0)
    assert isinstance(truncated, list)
    assert [record.topic for record in truncated] == ["shop.public.people"] * is_people + [
        "shop.audit.logs"
    ] * is_logs


@pytest.mark.parametrize(
    ("selection", "columns"),
    [
        (Selection(exclude_columns=("*.*.email",)), ["id", "name", "age"]),
        (Selection(include_columns=("public.people.id", "public.people.name")), ["id", "name"]),
        (Selection(include_columns=("audit.logs.id",)), ["id", "email", "name", "age"]),
        (Selection(include_columns=("*.*.*",), exclude_columns=("public.*.age",)), ["id", "email", "name"]),
    ],
)
def test_only_columns_that_are_selected_are_in_rows(selection: Selection, columns: list[str]) -> None:
    assert list(after(writer_of(selection).write(1, Insert(1, [*ANNA]), 0))) == columns


def test_a_key_is_whole_though_a_column_of_it_is_left_out_of_rows() -> None:
    records = writer_of(Selection(exclude_columns=("*.*.id",))).write(1, Insert(1, [*ANNA]), 0)
    assert isinstance(records, list)
    assert records[0].key == b'{"id":1}'
    assert "id" not in after(records)


def test_a_mask_stands_in_place_of_every_value_but_null() -> None:
    writer = writer_of(Selection(mask_columns={"*.people.name": "***", "*.people.age": "?"}))
    assert after(writer.write(1, Insert(1, [*ANNA]), 0)) == {
        "id": 1, "email": "anna@example.org", "name": "***", "age": "?",
    }  # fmt: skip
    assert after(writer.write(1, Insert(1, [b"2", b"", None, b"1"]), 0))["name"] is None


def test_a_value_that_is_not_needed_is_not_asked_for() -> None:
    selection = Selection(mask_columns={"*.people.name": "***"}, exclude_columns=("*.people.email",))
    update = Update(1, None, False, [b"1", UNCHANGED, UNCHANGED, b"41"])
    assert after(writer_of(selection).write(1, update, 0)) == {"id": 1, "name": "***", "age": 41}


def test_a_hash_needs_the_secret() -> None:
    selection = Selection(hash_columns=("*.*.email",), hash_secret=SECRET)
    assert after(writer_of(selection).write(1, Insert(1, [*ANNA]), 0))["email"] == EMAIL_HASH
    assert SECRET.decode() not in repr(selection)


def test_a_hashed_key_is_the_same_in_keys_rows_and_all_tables() -> None:
    selection = Selection(hash_columns=("*.*.email",), hash_secret=SECRET)
    by_email = pg.table(3, "public.users", {"email": "text", "n": "int4"}, identified_by=("email",))
    writer = writer_of(selection, PEOPLE, by_email)
    inserted = writer.write(1, Insert(3, [b"anna@example.org", b"1"]), 0)
    deleted = writer.write(1, Delete(3, [b"anna@example.org", None], False), 0)
    assert isinstance(inserted, list)
    assert isinstance(deleted, list)
    assert {record.key for record in (*inserted, *deleted)} == {f'{{"email":"{EMAIL_HASH}"}}'.encode()}
    assert after(inserted)["email"] == EMAIL_HASH
    assert json.loads(deleted[0].value or b"")["before"]["email"] == EMAIL_HASH


def test_a_key_that_changed_names_the_other_by_its_hash() -> None:
    selection = Selection(hash_columns=("*.*.id",), hash_secret=SECRET)
    moved = writer_of(selection).write(1, Update(1, [b"1", None, None, None], False, [b"2", *ANNA[1:]]), 0)
    assert isinstance(moved, list)
    written = b"".join(text for record in moved for _, text in record.headers)
    assert hmac.digest(SECRET, b"2", hashlib.sha256).hex().encode() in written
    assert b'"id":2' not in written


def test_a_key_can_not_be_masked() -> None:
    with pytest.raises(ConfigError, match=r"public\.people\.id is part of the key.*hash_columns"):
        writer_of(Selection(mask_columns={"*.*.id": "x"}))


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"include_tables": ("orders",)}, r"public\.orders"),
        ({"exclude_columns": ("public.orders",)}, r"public\.orders\.email"),
        ({"mask_columns": {"a..b": "x"}}, "names nothing"),
        ({"hash_columns": ("a.b.c",)}, "hash_secret of at least 16 bytes"),
        ({"hash_columns": ("a.b.c",), "hash_secret": b"short"}, "this one has 5"),
    ],
)
def test_a_selection_that_can_not_be_meant_is_refused(settings: dict[str, object], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        Selection(**settings)  # type: ignore[arg-type]


def test_patterns_that_match_nothing_are_named() -> None:
    tables = [("public", "users"), ("public", "orders")]
    columns = [("public", "users", "email"), ("public", "orders", "id")]
    right = Selection(
        include_tables=("public.users", "later.*"),
        exclude_tables=("*.orders",),
        include_columns=("public.users.*",),
        exclude_columns=("*.*.email",),
        mask_columns={"public.users.email": "***"},
    )
    assert right.unmatched(tables, columns) == []
    wrong = Selection(
        include_tables=("public.user",),
        exclude_tables=("*.order",),
        include_columns=("public.orders.i",),
        exclude_columns=("public.user.email",),
        mask_columns={"public.users.emial": "***"},
        hash_columns=("public.users.mail",),
        hash_secret=b"0123456789abcdef",
    )
    assert wrong.unmatched(tables, columns) == [
        "public.user",
        "*.order",
        "public.orders.i",
        "public.user.email",
        "public.users.emial",
        "public.users.mail",
    ]
