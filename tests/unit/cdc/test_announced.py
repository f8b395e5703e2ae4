"""What has to be announced of tables, also after a restart."""

from __future__ import annotations

from headrace.cdc.announced import Announced
from headrace.testing import pgoutput as pg

ORDERS = pg.table(1, "public.orders", {"id": "int8"})
ALTERED = pg.table(1, "public.orders", {"id": "int8", "extra": "text"})
OTHERS = pg.table(2, "public.others", {"id": "int8"})


def test_what_is_there_as_a_capture_begins_is_known() -> None:
    announced = Announced()
    announced.take(ORDERS)
    assert announced.has(ORDERS)
    assert not announced.has(ALTERED)


def test_what_a_snapshot_finds_before_the_stream_has_told_of_it_is_not() -> None:
    announced = Announced()
    announced.take(ORDERS)
    announced.take(ALTERED)
    announced.begun()
    announced.take(OTHERS)
    assert announced.has(ORDERS)
    assert not announced.has(ALTERED)
    assert not announced.knows(OTHERS.oid)


def test_after_a_restart_a_table_that_was_altered_is_known_as_it_was() -> None:
    before = Announced()
    before.take(ORDERS)
    announced = Announced(before.digests)
    announced.take(ALTERED)
    announced.take(OTHERS)
    assert announced.has(ORDERS)
    assert announced.knows(ORDERS.oid)
    assert not announced.has(ALTERED)
    assert not announced.knows(OTHERS.oid)


def test_what_was_announced_is_announced_for_good() -> None:
    announced = Announced({})
    announced.add(ALTERED)
    assert Announced(announced.digests).has(ALTERED)
