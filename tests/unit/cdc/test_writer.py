from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.cdc.catalog import KnownCatalog
from headrace.cdc.envelope import SnapshotPoint
from headrace.cdc.last_values import MissingValues, RecentValues
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
    StreamStop,
    Truncate,
    Type,
    Update,
    Value,
)
from headrace.cdc.notices import NOTICES_MAX, Notices
from headrace.cdc.record import Record
from headrace.cdc.rows import GONE_COLUMNS
from headrace.cdc.settings import EventSettings
from headrace.cdc.writer import ChangeWriter
from headrace.errors import ConfigError, ProtocolError
from headrace.testing import pgoutput as pg

BEGIN = Begin(final_lsn=90, commit_us=5_000_001, xid=7)
COMMIT = Commit(commit_lsn=90, end_lsn=99, commit_us=5_000_001)
DEMO = pg.table(1, "public.demo", {"id": "int4", "n": "int4", "big": "text"})
LARGE = b"x" * 3000
CATALOG = KnownCatalog(primary_keys={("public", "full"): ("id",), ("public", "nothing"): ("id",)})


def writer_of(*tables: Relation, **settings: Any) -> ChangeWriter:
    last_values = settings.pop("last_values", None)
    events = EventSettings(prefix="shop", database="shop", version="1", **settings)
    writer = ChangeWriter(events, CATALOG, last_values=last_values, last_commit_lsn=50)
    for table in tables or (DEMO,):
        writer.know(table)
    writer.write(0, BEGIN, 0)
    return writer


def rows_of(writer: ChangeWriter, *messages: Message) -> list[Record]:
    """Records of tables only."""
    records: list[Record] = []
    for message in messages:
        made = writer.write(60, message, 1_000_000)
        assert isinstance(made, list)
        records += [record for record in made if record.topic.startswith("shop.public.")]
    return records


def shape(records: list[Record]) -> list[tuple[str | None, object, object, object]]:
    """Operation, key, before and after."""
    found: list[tuple[str | None, object, object, object]] = []
    for record in records:
        key = None if record.key is None else json.loads(record.key)
        value = {} if record.value is None else json.loads(record.value)
        found.append((value.get("op"), key, value.get("before"), value.get("after")))
    return found


def row(number: int, n: int | None = None, big: str | None = None) -> dict[str, object]:
    return {"id": number, "n": n, "big": big}


def test_that_a_truncation_reaches_one_of_several_partitions_is_told() -> None:
    truncate = Truncate(relations=(1,), cascade=False, restart_identity=False)
    for partition_count in (1, 3):
        writer = writer_of(partition_count=partition_count)
        rows_of(writer, truncate)
        told = writer.notices.take()
        assert [each for each in told if "public.demo was truncated" in each] == told
        assert len(told) == (partition_count > 1)


def test_an_update_has_only_what_it_became_unless_old_rows_are_logged() -> None:
    full = pg.table(2, "public.full", {"id": "int4", "n": "int4", "big": "text"}, identity="f")
    writer = writer_of(DEMO, full)
    old: list[Value] = [b"1", b"2", b"b"]
    plain = rows_of(writer, Update(1, None, False, [b"1", b"3", b"b"]))
    logged = rows_of(writer, Update(2, old, True, [b"1", b"3", b"b"]))
    assert shape(plain) == [("u", {"id": 1}, None, row(1, 3, "b"))]
    assert shape(logged) == [("u", {"id": 1}, row(1, 2, "b"), row(1, 3, "b"))]


def test_an_identity_that_is_logged_though_it_has_not_changed_is_no_change_of_key() -> None:
    update = Update(1, [b"1", None, None], False, [b"1", b"3", b"b"])
    assert shape(rows_of(writer_of(), update)) == [("u", {"id": 1}, None, row(1, 3, "b"))]


def test_a_key_that_changed_is_a_delete_a_tombstone_and_a_create() -> None:
    records = rows_of(writer_of(), Update(1, [b"1", None, None], False, [b"2", b"3", b"b"]))
    assert shape(records) == [
        ("d", {"id": 1}, row(1), None),
        (None, {"id": 1}, None, None),
        ("c", {"id": 2}, None, row(2, 3, "b")),
    ]
    assert records[0].headers == (("__debezium.newkey", b'{"id":2}'),)
    assert records[2].headers == (("__debezium.oldkey", b'{"id":1}'),)


def test_tombstones_can_be_left_out() -> None:
    writer = writer_of(tombstones=False)
    moved = Update(1, [b"1", None, None], False, [b"2", b"3", b"b"])
    records = rows_of(writer, moved, Delete(1, [b"2", None, None], False))
    assert [operation for operation, *_ in shape(records)] == ["d", "c", "d"]


def test_a_truncation_of_several_tables_is_an_event_for_each() -> None:
    other = pg.table(2, "public.other", {"id": "int4"})
    truncate = Truncate(relations=(1, 2), cascade=True, restart_identity=True)
    records = rows_of(writer_of(DEMO, other), truncate)
    assert [record.topic for record in records] == ["shop.public.demo", "shop.public.other"]
    assert shape(records) == [("t", None, None, None)] * 2


@pytest.mark.parametrize(
    ("table", "key"),
    [
        (pg.table(2, "public.full", {"id": "int4", "n": "int4"}, identity="f"), b'{"id":1}'),
        (pg.table(2, "public.nothing", {"id": "int4", "n": "int4"}, identity="n"), b'{"id":1}'),
        (
            pg.table(2, "public.x", {"id": "int4", "n": "int4"}, identified_by=("n",), identity="i"),
            b'{"n":2}',
        ),
        (pg.table(2, "public.x", {"n": "int4", "id": "int4"}, identified_by=("id", "n")), b'{"n":1,"id":2}'),
        (pg.table(2, "public.full", {"renamed": "int4", "n": "int4"}, identity="f"), None),
        (pg.table(2, "public.x", {"id": "int4", "n": "int4"}, identity="f"), None),
        (pg.table(2, "public.x", {"id": "int4", "n": "int4"}, identified_by=()), None),
    ],
)
def test_the_key_is_the_primary_key_or_else_the_index_that_is_the_identity(
    table: Relation, key: bytes | None
) -> None:
    writer = writer_of(table)
    assert [record.key for record in rows_of(writer, Insert(2, [b"1", b"2"]))] == [key]
    assert len(writer.notices.take()) == (key is None)


@pytest.mark.parametrize(
    ("identified_by", "old", "old_key", "new_key"),
    [
        (("n",), [None, b"2", None], {"n": 2}, {"n": 3}),
        (("id", "n"), [b"1", b"2", None], {"id": 1}, {"id": 1}),
    ],
    ids=["another index", "an index with the primary key in it"],
)
def test_where_the_identity_is_an_index_the_key_is_of_columns_that_are_logged(
    identified_by: tuple[str, ...], old: list[Value], old_key: object, new_key: object
) -> None:
    columns = {"id": "int4", "n": "int4", "big": "text"}
    writer = writer_of(pg.table(2, "public.full", columns, identified_by=identified_by, identity="i"))
    made = rows_of(writer, Update(2, old, False, [b"1", b"3", b"b"]), Delete(2, old, False))
    keys = [(operation, key) for operation, key, *_ in shape(made)]
    moved = [("d", old_key), (None, old_key), ("c", new_key)]
    assert keys == [
        *(moved if old_key != new_key else [("u", new_key)]),
        ("d", old_key),
        (None, old_key),
    ]


def test_a_table_without_a_key_has_no_tombstones_and_is_told_of_once() -> None:
    table = pg.table(2, "public.x", {"id": "int4", "n": "int4"}, identity="f")
    writer = writer_of(table, table)
    records = rows_of(writer, Update(2, [b"1", b"2"], True, [b"3", b"2"]), Delete(2, [b"3", b"2"], True))
    assert [(operation, key) for operation, key, *_ in shape(records)] == [("u", None), ("d", None)]
    assert ["has no primary key" in notice for notice in writer.notices.take()] == [True]


class TestUnchangedValues:
    UPDATE = Update(1, None, False, [b"1", b"3", UNCHANGED])
    MOVE = Update(1, [b"1", None, None], False, [b"2", b"3", UNCHANGED])

    def test_come_from_the_old_row_where_that_is_logged(self) -> None:
        full = pg.table(2, "public.full", {"id": "int4", "n": "int4", "big": "text"}, identity="f")
        update = Update(2, [b"1", b"2", LARGE], True, [b"1", b"3", UNCHANGED])
        ((_, _, before, after),) = shape(rows_of(writer_of(full), update))
        assert (before, after) == (row(1, 2, LARGE.decode()), row(1, 3, LARGE.decode()))

    @pytest.mark.parametrize("update", [UPDATE, MOVE], ids=["the key stays", "the key changes"])
    def test_come_from_what_was_written_last(self, update: Update) -> None:
        writer = writer_of(last_values=RecentValues())
        rows_of(writer, Insert(1, [b"1", b"1", LARGE]))
        key = int(str(update.new[0], "ascii"))  # type: ignore[arg-type]
        assert shape(rows_of(writer, update))[-1][3] == row(key, 3, LARGE.decode())
        again = Update(1, None, False, [update.new[0], b"4", UNCHANGED])
        assert shape(rows_of(writer, again))[-1][3] == row(key, 4, LARGE.decode())

    @pytest.mark.parametrize(
        "between",
        [
            Delete(1, [b"1", None, None], False),
            Truncate(relations=(1,), cascade=False, restart_identity=False),
            Update(1, None, False, [b"1", b"3", b"small"]),
            Update(1, [b"1", None, None], False, [b"9", b"3", LARGE]),
            pg.table(1, "public.demo", {"id": "int4", "n": "int8", "big": "text"}),
        ],
        ids=["deleted", "truncated", "made small", "moved", "altered"],
    )
    def test_are_not_those_of_a_row_that_is_another_now(self, between: Message) -> None:
        writer = writer_of(last_values=RecentValues())
        rows_of(writer, Insert(1, [b"1", b"1", LARGE]))
        assert isinstance(writer.write(60, between, 0), list)
        assert isinstance(writer.write(60, self.UPDATE, 0), MissingValues)

    def test_are_asked_for_where_nobody_knows_them_and_nothing_is_done_before(self) -> None:
        writer = writer_of()
        missing = writer.write(60, self.MOVE, 0)
        assert isinstance(missing, MissingValues)
        assert (missing.relation, missing.key, missing.columns) == (DEMO, {"id": b"2"}, ("big",))
        made = writer.write(60, missing.answered({"big": LARGE}), 0)
        assert isinstance(made, list)
        assert [record.topic for record in made[:1]] == ["shop.transaction"]
        assert shape(made)[-1][3] == row(2, 3, LARGE.decode())
        assert json.loads(made[-1].value or b"")["transaction"]["total_order"] == 2

    def test_that_are_null_by_now_are_null(self) -> None:
        writer = writer_of()
        missing = writer.write(60, self.UPDATE, 0)
        assert isinstance(missing, MissingValues)
        assert shape(rows_of(writer, missing.answered({"big": None})))[-1][3] == row(1, 3, None)

    def test_that_are_gone_are_left_out_and_a_header_says_so(self) -> None:
        writer = writer_of()
        missing = writer.write(60, self.UPDATE, 0)
        assert isinstance(missing, MissingValues)
        (record,) = rows_of(writer, missing.answered(None))
        assert json.loads(record.value or b"")["after"] == {"id": 1, "n": 3}
        assert record.headers == ((GONE_COLUMNS, b'["big"]'),)

    def test_of_a_key_come_from_the_identity(self) -> None:
        table = pg.table(2, "public.x", {"id": "text", "n": "int4"})
        update = Update(2, [LARGE, None], False, [UNCHANGED, b"3"])
        assert shape(rows_of(writer_of(table), update)) == [
            ("u", {"id": LARGE.decode()}, None, {"id": LARGE.decode(), "n": 3})
        ]


class TestRecentValues:
    def test_hold_what_was_written_most_recently_up_to_a_number_of_bytes(self) -> None:
        values = RecentValues(bytes_max=30)
        for number in range(5):
            values.put("t", b"%d" % number, {"a": b"123456789"})
        assert [values.get("t", b"%d" % number) is not None for number in range(5)] == [
            False,
            False,
            True,
            True,
            True,
        ]
        assert values.size_bytes == 30
        values.put("t", b"2", {"a": b"1"})
        values.put("t", b"9", {"a": b"123"})
        assert values.get("t", b"2") == {"a": b"1"}

    def test_a_row_that_is_larger_than_all_of_it_is_not_held(self) -> None:
        values = RecentValues(bytes_max=30)
        values.put("t", b"1", {"a": b"1" * 100})
        assert (values.get("t", b"1"), values.size_bytes) == (None, 0)

    def test_forget_a_table_and_no_other(self) -> None:
        values = RecentValues()
        values.put("t", b"1", {"a": b"1"})
        values.put("u", b"1", {"a": b"1"})
        values.forget_table("t")
        assert (values.get("t", b"1"), values.get("u", b"1")) == (None, {"a": b"1"})


class TestTransactions:
    def test_tell_their_counts_by_table(self) -> None:
        writer = writer_of()
        made = writer.write(60, Insert(1, [b"1", b"1", None]), 0)
        message = LogicalMessage(is_transactional=True, lsn=61, prefix="p", content=b"")
        writer.write(61, message, 0)
        writer.write(62, Delete(1, [b"1", None, None], False), 0)
        end = writer.write(99, COMMIT, 0)
        assert isinstance(made, list)
        assert isinstance(end, list)
        assert json.loads(made[0].value or b"") == {
            "status": "BEGIN", "id": "7:90", "event_count": None, "data_collections": None, "ts_ms": 5000,
        }  # fmt: skip
        counts = [
            {"data_collection": "public.demo", "event_count": 2},
            {"data_collection": "message", "event_count": 1},
        ]
        assert json.loads(end[0].value or b"") == {
            "status": "END", "id": "7:90", "event_count": 3, "data_collections": counts, "ts_ms": 5000,
        }  # fmt: skip
        assert {record.key for record in (made[0], end[0])} == {b'{"id":"7:90"}'}

    def test_in_which_nothing_happened_are_not_told_of(self) -> None:
        writer = writer_of()
        assert writer.write(99, COMMIT, 0) == []
        assert writer.last_commit_lsn == 99

    def test_can_be_left_out(self) -> None:
        writer = writer_of(transactions=False)
        made = writer.write(60, Insert(1, [b"1", b"1", None]), 0)
        assert isinstance(made, list)
        assert json.loads(made[0].value or b"")["transaction"] is None
        assert writer.write(99, COMMIT, 0) == []

    def test_say_where_they_come_from(self) -> None:
        writer = writer_of()
        writer.write(0, Origin(commit_lsn=33, name='far "away"'), 0)
        first = json.loads(rows_of(writer, Insert(1, [b"1", b"1", None]))[0].value or b"")["source"]
        assert (first["origin"], first["origin_lsn"]) == ('far "away"', 33)
        assert json.loads(first["sequence"]) == ["50", "60"]
        writer.write(99, COMMIT, 0)
        writer.write(0, BEGIN, 0)
        second = json.loads(rows_of(writer, Insert(1, [b"1", b"1", None]))[0].value or b"")["source"]
        assert second["origin"] is None
        assert json.loads(second["sequence"]) == ["99", "60"]

    @pytest.mark.parametrize(
        ("messages", "why"),
        [
            ([BEGIN], "began before transaction 7 had ended"),
            ([COMMIT, COMMIT], "had not begun"),
            ([COMMIT, Insert(1, [b"1", b"1", None])], "outside of any transaction"),
            ([Insert(5, [b"1"])], "table 5, which was not described"),
            ([Insert(1, [b"1"])], "has 1 columns where 3 were described"),
            ([StreamStop()], "put transactions together first"),
        ],
    )
    def test_out_of_order_are_refused(self, messages: list[Message], why: str) -> None:
        writer = writer_of()
        for message in messages[:-1]:
            writer.write(60, message, 0)
        with pytest.raises(ProtocolError, match=why):
            writer.write(60, messages[-1], 0)


def test_a_message_outside_of_a_transaction_has_none() -> None:
    writer = writer_of()
    message = LogicalMessage(is_transactional=False, lsn=61, prefix="p", content=b"x")
    made = writer.write(61, message, 7_000_000)
    assert isinstance(made, list)
    assert len(made) == 1
    value = json.loads(made[0].value or b"")
    assert (made[0].topic, made[0].key) == ("shop.message", b'{"prefix":"p"}')
    assert (value["transaction"], value["source"]["lsn"], value["source"]["ts_ms"]) == (None, 61, 7)
    assert value["source"]["txId"] is None


class TestSchemaChanges:
    COLUMNS: dict[str, str | tuple[int, int]] = {
        "id": "int4", "price": (1700, (10 << 16 | 2) + 4), "name": (1043, 24), "at": (1184, 3),
        "own": (4711, -1),
    }  # fmt: skip

    def test_tell_of_a_table_that_comes_up_and_of_one_that_changes(self) -> None:
        writer = writer_of()
        writer.write(60, Type(oid=4711, schema="public", name="mood"), 0)
        new = self.announced(writer, pg.table(2, "public.new", self.COLUMNS), [b"1", None, None, None, None])
        altered = self.announced(writer, pg.table(2, "public.new", {"id": "int8"}), [b"1"])
        assert self.announced(writer, pg.table(2, "public.new", {"id": "int8"}), [b"1"]) == []
        assert (new[0].topic, new[0].key) == ("shop.schema-changes", b'{"databaseName":"shop"}')
        value = json.loads(new[0].value or b"")
        change = value["tableChanges"][0]
        assert (change["type"], change["id"]) == ("CREATE", '"public"."new"')
        assert change["table"]["primaryKeyColumnNames"] == ["id"]
        assert [column["typeExpression"] for column in change["table"]["columns"]] == [
            "int4", "numeric(10,2)", "varchar(20)", "timestamptz(3)", "mood",
        ]  # fmt: skip
        assert (value["source"]["table"], value["source"]["lsn"], value["ts_ms"]) == ("new", 60, 9)
        assert json.loads(altered[0].value or b"")["tableChanges"][0]["type"] == "ALTER"

    @staticmethod
    def announced(writer: ChangeWriter, table: Relation, row: list[Value]) -> list[Record]:
        assert writer.write(60, table, 0) == []
        made = writer.write(60, Insert(table.oid, row), 9_000_000)
        assert isinstance(made, list)
        assert made[-1].topic == "shop.public.new"
        return [record for record in made if record.topic == "shop.schema-changes"]

    def test_are_not_told_of_what_is_known(self) -> None:
        writer = writer_of()
        writer.know(pg.table(2, "public.new", {"id": "int8"}))
        assert self.announced(writer, pg.table(2, "public.new", {"id": "int8"}), [b"1"]) == []

    def test_that_no_row_ever_showed_are_not_told_of(self) -> None:
        writer = writer_of()
        writer.know(pg.table(2, "public.new", {"id": "int8"}))
        writer.write(60, pg.table(2, "public.new", {"id": "int8", "rolled_back": "text"}), 0)
        assert self.announced(writer, pg.table(2, "public.new", {"id": "int8"}), [b"1"]) == []

    def test_are_told_though_a_snapshot_reads_the_table_in_between(self) -> None:
        writer = writer_of()
        altered = pg.table(2, "public.new", {"id": "int8", "added": "text"})
        writer.know(pg.table(2, "public.new", {"id": "int8"}))
        writer.write(60, altered, 0)
        writer.know(altered)
        writer.know(altered)
        assert len(self.announced(writer, altered, [b"1", None])) == 1

    def test_come_before_a_truncation_too(self) -> None:
        writer = writer_of()
        writer.write(60, pg.table(2, "public.new", {"id": "int8"}), 0)
        made = writer.write(60, Truncate(relations=(2,), cascade=False, restart_identity=False), 0)
        assert isinstance(made, list)
        assert [record.topic for record in made] == [
            "shop.transaction",
            "shop.schema-changes",
            "shop.public.new",
        ]

    def test_can_be_left_out(self) -> None:
        writer = writer_of(schema_changes=False)
        assert self.announced(writer, pg.table(2, "public.new", {"id": "int8"}), [b"1"]) == []


def test_a_value_that_is_not_what_its_type_promises_is_written_as_its_text() -> None:
    table = pg.table(2, "public.x", {"id": "int4", "d": "date", "t": "text"})
    writer = writer_of(table)
    ((_, _, _, after),) = shape(rows_of(writer, Insert(2, [b"1", b"02.01.2026", b"x"])))
    assert after == {"id": 1, "d": "02.01.2026", "t": "x"}
    assert ["public.x.d" in notice and "DateStyle" in notice for notice in writer.notices.take()] == [True]


def test_names_may_hold_what_they_like() -> None:
    table = pg.table(2, 'public.50% "off"', {"id": "int4", '5%b "x"': "text"})
    (record,) = rows_of(writer_of(table), Insert(2, [b"1", b"%d"]))
    assert record.topic == "shop.public.50___off_"
    assert json.loads(record.value or b"")["after"] == {"id": 1, '5%b "x"': "%d"}


def test_two_tables_never_share_a_topic() -> None:
    with pytest.raises(ConfigError, match=r"public\.a b and public\.a_b .* shop\.public\.a_b: rename"):
        writer_of(pg.table(1, "public.a_b", {"id": "int4"}), pg.table(2, "public.a b", {"id": "int4"}))


def test_a_table_that_was_dropped_and_made_anew_goes_on_with_its_topic() -> None:
    writer_of(pg.table(1, "public.a", {"id": "int4"}), pg.table(2, "public.a", {"id": "int4"}))


def test_a_snapshot_leaves_out_what_is_not_captured() -> None:
    point = SnapshotPoint(marker="first", at_ns=1, lsn=5, xid=3)
    record = writer_of().snapshot_row(1, [b"1", None, None], point, 2)
    assert record is not None
    assert json.loads(record.value or b"")["source"]["snapshot"] == "first"


def test_notices_are_told_once_and_bounded() -> None:
    notices = Notices()
    for number in range(NOTICES_MAX + 5):
        notices.tell(f"n{number}")
        notices.tell(f"n{number}")
    taken = notices.take()
    assert len(taken) == NOTICES_MAX + 1
    assert "only counted" in taken[-1]
    assert notices.count == 2 * (NOTICES_MAX + 5)
    assert notices.take() == []


@pytest.mark.parametrize("settings", [{"prefix": "a b"}, {"database": ""}])
def test_settings_that_can_not_be_are_refused(settings: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        EventSettings(**{"prefix": "a", "database": "b", "version": "1", **settings})  # type: ignore[arg-type]
