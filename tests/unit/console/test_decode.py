"""From bytes to what the page may show."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.console.decode import (
    EVIDENCE_COUNT_MAX,
    TEXT_LENGTH_MAX,
    VALUE_BYTES_MAX,
    Alert,
    AlertRecord,
    Undecodable,
    decode,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

WHOLE = {
    "alert_id": "velocity-42",
    "rule": "velocity",
    "card_id": "card-004711",
    "tx_id": "tx-7",
    "at": "2024-03-01T12:00:00.250Z",
    "count": 7,
    "evidence": ["tx-1", "tx-7"],
    "total": 812.5,
    "sent_at": 1_700_000_000_123,
}

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
    max_leaves=10,
)
fields = st.dictionaries(st.sampled_from(sorted(WHOLE)) | st.text(), json_values)


def record(value: bytes | None) -> AlertRecord:
    return AlertRecord(
        partition=0, offset=0, key=None, value=value, timestamp_ms=None, received_ms=0, live=True
    )


def alert(fields: Mapping[str, Any]) -> Alert:
    content, _ = decode(record(json.dumps(fields).encode()))
    assert isinstance(content, Alert)
    return content


def undecodable(value: bytes | None) -> Undecodable:
    content, alert_id = decode(record(value))
    assert isinstance(content, Undecodable)
    assert alert_id is None
    return content


def test_an_alert_is_read_field_by_field() -> None:
    assert alert(WHOLE) == Alert(
        alert_id="velocity-42",
        rule="velocity",
        words="7 transactions in 1 minute",
        card="•••• 4711",
        trigger="tx-7",
        at_ms=1_709_294_400_250,
        total=812.5,
        sent_at_ms=1_700_000_000_123,
        evidence=("tx-1", "tx-7"),
        evidence_count=2,
        other=(),
    )


def test_an_alert_of_nothing_known_is_shown_generically() -> None:
    shown = alert({"speed_kmh": 812, "cities": ["Oslo", "Rome"]})
    assert shown.words == "Alert without a rule"
    assert shown.other == (("speed_kmh", "812"), ("cities", '["Oslo", "Rome"]'))


def test_an_unknown_rule_is_named_in_plain_words() -> None:
    assert alert({"rule": "impossible_travel"}).words == "Impossible travel"


def test_a_known_field_of_an_unexpected_kind_is_shown_as_text_rather_than_lost() -> None:
    shown = alert({"evidence": "tx-1", "total": "much", "at": "yesterday", "count": True, "sent_at": [1]})
    assert dict(shown.other) == {
        "evidence": "tx-1",
        "total": "much",
        "at": "yesterday",
        "count": "true",
        "sent_at": "[1]",
    }


def test_the_cards_full_id_appears_nowhere() -> None:
    shown = alert({**WHOLE, "alert_id": "velocity:card-004711:tx-7", "note": "card-004711 is hot"})
    assert "card-004711" not in repr(shown)
    assert shown.alert_id == "velocity:•••• 4711:tx-7"


def test_an_event_time_without_a_zone_is_utc() -> None:
    assert alert({"at": "1970-01-01T00:00:01"}).at_ms == 1_000


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "no value"),
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\xff\xfe", "not UTF-8"),
        (b"42", "a JSON number where an object was expected"),
        (b"[]", "a JSON array"),
        (b"null", "a JSON null"),
        (b'{"total": NaN}', "NaN is not a JSON number"),
        (b'{"total": 1e999}', "does not fit a number"),
        (b"[" * 100_000, "not JSON"),
        (b'{"total": ' + b"9" * 10_000 + b"}", "not JSON"),
        (b" " * (VALUE_BYTES_MAX + 1), "bytes; at most"),
    ],
    ids=lambda value: repr(value)[:24],
)
def test_what_is_not_an_alert_says_why(value: bytes | None, reason: str) -> None:
    assert reason in undecodable(value).reason


def test_the_beginning_of_an_undecodable_record_is_kept() -> None:
    assert undecodable(b"\xff then text").preview == "\ufffd then text"


@given(st.binary(max_size=200))
def test_no_bytes_raise(value: bytes) -> None:
    decode(record(value))


@given(fields)
def test_no_object_raises_and_all_that_leaves_is_bounded_json(fields: dict[str, Any]) -> None:
    try:
        text = json.dumps(fields, allow_nan=False)
    except ValueError:
        return
    shown = alert(json.loads(text))
    texts = [shown.words, shown.alert_id, shown.rule, shown.card, shown.trigger, *shown.evidence]
    texts += [text for pair in shown.other for text in pair]
    assert all(text is None or len(text) <= TEXT_LENGTH_MAX for text in texts)
    json.dumps([shown.total, shown.at_ms, shown.sent_at_ms], allow_nan=False)


def test_a_long_list_of_evidence_is_cut_and_its_length_told() -> None:
    shown = alert({"evidence": [f"tx-{n}" for n in range(1_000)]})
    assert (len(shown.evidence), shown.evidence_count) == (EVIDENCE_COUNT_MAX, 1_000)


def test_deep_nesting_inside_an_alert_is_shown_or_refused_but_never_raises() -> None:
    for depth in (100, 300, 600, 900, 950, 980):
        decode(record(b'{"deep": ' + b"[" * depth + b"]" * depth + b"}"))


def test_a_lone_surrogate_survives() -> None:
    content, alert_id = decode(record(b'{"alert_id": "\\ud800"}'))
    assert isinstance(content, Alert)
    assert alert_id == "\ud800"


EVENT = {
    "tx_id": "tx-7",
    "at": "2024-03-01T12:00:00Z",
    "amount": 5,
    "merchant": "grocer",
    "lat": 52.5,
    "lon": 13,
}


def test_evidence_in_full_has_times_amounts_and_places() -> None:
    found = alert({**WHOLE, "transactions": [EVENT, {"tx_id": "card-004711/8"}, "no object"], "home_lat": 1})
    assert [(event.name, event.amount, event.what, event.place) for event in found.events] == [
        ("tx-7", 5.0, "grocer", (52.5, 13.0)),
        ("•••• 4711/8", None, None, None),
    ]
    assert found.home is None
    assert alert({"home_lat": 1, "home_lon": 2.5}).home == (1.0, 2.5)
    assert len(alert({"transactions": [EVENT] * 999}).events) == EVIDENCE_COUNT_MAX


def test_an_alert_holds_until_a_version_withdraws_it() -> None:
    assert alert({"rule": "x"}).holds
    assert not alert({"rule": "x", "holds": False}).holds
    assert alert({"rule": "x", "holds": "no"}).other == (("holds", "no"),)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"rule": "travel", "km": 1812.37, "value": 99.256}, "1,812 km at 99.26 km/h"),
        ({"rule": "travel", "km": 12, "value": "many"}, "12 km at many km/h"),
        ({"rule": "travel", "km": None, "value": 5}, "Travel"),
        ({"rule": "travel", "km": [1], "value": 5}, "Travel"),
        ({"rule": "plain"}, "Nothing to fill in"),
        ({"km": 7}, "7 km without a rule"),
        ({"value": 5}, "Alert without a rule"),
        ({"rule": "{km}", "km": 5}, "{km}"),
    ],
)
def test_a_rule_speaks_the_words_that_the_view_gives_it(fields: dict[str, Any], words: str) -> None:
    view = {
        "travel": "{km} km at {value} km/h",
        "plain": "Nothing to fill in",
        "no_rule": "{km} km without a rule",
    }
    content, _ = decode(record(json.dumps(fields).encode()), view)
    assert isinstance(content, Alert)
    assert content.words == words
