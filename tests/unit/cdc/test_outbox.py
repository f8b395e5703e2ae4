from __future__ import annotations

import pytest

from headrace.cdc.catalog import KnownCatalog
from headrace.cdc.envelope import SnapshotPoint
from headrace.cdc.messages import Begin, Commit, Delete, Insert, Relation, Update
from headrace.cdc.outbox import Outbox
from headrace.cdc.record import Record
from headrace.cdc.settings import EventSettings
from headrace.cdc.writer import ChangeWriter
from headrace.errors import ConfigError
from headrace.testing import pgoutput as pg

COLUMNS = {"id": "uuid", "aggregatetype": "text", "aggregateid": "text", "type": "text", "payload": "jsonb"}
OUTBOX = pg.table(1, "public.outbox", COLUMNS)
ROW = [b"e1", b"order", b"42", b"OrderPlaced", b'{"total": 7}']


def writer_of(table: Relation = OUTBOX, outbox: Outbox | None = None) -> ChangeWriter:
    settings = EventSettings(prefix="shop", database="shop", version="1")
    writer = ChangeWriter(settings, KnownCatalog(), outbox=outbox or Outbox())
    writer.write(0, Begin(final_lsn=1, commit_us=1, xid=1), 0)
    assert writer.write(0, table, 0) == []
    return writer


def test_a_row_of_the_outbox_becomes_an_event_on_a_topic_of_its_own() -> None:
    writer = writer_of()
    assert writer.write(1, Insert(1, [*ROW]), 0) == [
        Record("outbox.event.order", b"42", b'{"total": 7}', (("id", b"e1"), ("type", b"OrderPlaced")))
    ]
    assert writer.write(1, Commit(commit_lsn=1, end_lsn=2, commit_us=1), 0) == []


def test_a_row_may_be_deleted_at_once_and_may_not_be_updated() -> None:
    writer = writer_of()
    assert writer.write(1, Delete(1, [b"e1", None, None, None, None], False), 0) == []
    assert writer.notices.take() == []
    assert writer.write(1, Update(1, None, False, [*ROW]), 0) == []
    assert ["outbox was updated" in notice for notice in writer.notices.take()] == [True]


def test_further_headers_come_from_a_column() -> None:
    table = pg.table(1, "public.outbox", {**COLUMNS, "headers": "jsonb"})
    writer = writer_of(table)
    made = writer.write(1, Insert(1, [*ROW, b'{"trace": "ab", "n": 1, "of": ["x"]}']), 0)
    assert isinstance(made, list)
    assert made[0].headers[2:] == (("trace", b"ab"), ("n", b"1"), ("of", b'["x"]'))
    for no_object in (b"[]", b"{", None):
        made = writer.write(1, Insert(1, [*ROW, no_object]), 0)
        assert isinstance(made, list)
        assert made[0].headers[2:] == ()
    assert ["no JSON object" in notice for notice in writer.notices.take()] == [True]
    assert writer.notices.count == 2


def test_a_payload_of_bytes_is_written_as_they_are() -> None:
    writer = writer_of(pg.table(1, "public.outbox", {**COLUMNS, "payload": "bytea"}))
    made = writer.write(1, Insert(1, [*ROW[:4], b"\\x00ff"]), 0)
    assert isinstance(made, list)
    assert made[0].value == b"\x00\xff"


def test_columns_table_and_topics_can_have_other_names() -> None:
    outbox = Outbox(
        table="app.events",
        topic="events-{route}",
        route_column="kind",
        key_column="subject",
        payload_column="body",
        id_column="event_id",
        type_column="name",
    )
    columns = {"event_id": "int8", "kind": "text", "subject": "text", "body": "text"}
    writer = writer_of(pg.table(1, "app.events", columns, identified_by=("event_id",)), outbox)
    made = writer.write(1, Insert(1, [b"1", b"new order/x!", None, None]), 0)
    assert made == [Record("events-new_order_x_", None, None, (("id", b"1"),))]


def test_an_outbox_that_lacks_a_column_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"public\.outbox has no column aggregateid, payload"):
        writer_of(pg.table(1, "public.outbox", {"id": "uuid", "aggregatetype": "text"}))


@pytest.mark.parametrize("settings", [{"table": "outbox"}, {"topic": "a b"}])
def test_settings_that_can_not_be_are_refused(settings: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        Outbox(**settings)


def test_the_outbox_is_not_part_of_a_snapshot() -> None:
    point = SnapshotPoint(marker="true", at_ns=1, lsn=1)
    assert writer_of().snapshot_row(1, [*ROW], point, 0) is None
