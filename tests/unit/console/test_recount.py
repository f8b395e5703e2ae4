"""The alerts topic, counted apart from the page."""

from __future__ import annotations

import random
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, cast

import pytest

from headrace.console import recount as module
from headrace.console.alerts import AlertBook
from headrace.console.recount import Tally, TooManyIds, recount

if TYPE_CHECKING:
    from tests.unit.console.conftest import FakeCatalog, Recorder

    from headrace.console.catalog import KafkaCatalog


def alert(alert_id: object) -> bytes:
    return b'{"alert_id": "%s"}' % str(alert_id).encode()


def test_a_topic_is_counted_as_a_naive_reference_does() -> None:
    rng = random.Random(7)
    ids = [rng.randrange(40) for _ in range(100)]
    tally = Tally()
    for each in ids:
        tally.take(None, alert(each))
    assert tally.as_json()["alert_count"] == len(set(ids))
    assert tally.as_json()["repeat_count"] == len(ids) - len(set(ids))


def test_the_topic_and_the_page_count_the_same(recorder: Recorder) -> None:
    rng = random.Random(11)
    tally, book = Tally(), AlertBook(recent_alert_count_max=5)
    for _ in range(300):
        fields = {} if rng.random() < 0.5 else {"holds": rng.random() < 0.5}
        record = recorder.alert(rng.choice([None, *"abcdefghijkl"]), **fields)
        if rng.random() < 0.1:
            record = recorder.raw(rng.choice([b"?", None]))
        tally.take(record.key, record.value)
        book.take(record)
    assert tally.as_json() == {"record_count": 300, **asdict(book.counts)}


def test_ids_that_there_is_no_room_for_end_the_count_and_known_ones_do_not() -> None:
    tally = Tally(id_count_max=2)
    for each in ("a", "b", "a"):
        tally.take(None, alert(each))
    with pytest.raises(TooManyIds):
        tally.take(None, alert("c"))
    counted: dict[str, Any] = tally.as_json()
    assert (counted["record_count"], counted["alert_count"], counted["repeat_count"]) == (3, 2, 1)


def test_a_topic_of_too_many_ids_is_said_to_be_counted_in_part(
    catalog: FakeCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "Tally", lambda: Tally(id_count_max=1))
    counted = recount(cast("KafkaCatalog", catalog), "alerts")
    assert (counted["is_complete"], counted["alert_count"]) == (False, 1)
