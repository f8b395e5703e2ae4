"""From a record's bytes to what the page may show of it.

Anything can be on a topic. A value that is not a JSON object becomes an `Undecodable`, with the reason and
the beginning of its bytes; nothing raises and nothing is dropped. Of a JSON object, the fields that the page
knows are taken where they have the expected kind:

    alert_id   text   names the alert: a record with the same id is a repeat      tx_id     the trigger
    rule       text   which rule fired                                            evidence  a list of ids
    card_id    text   the card, never shown but for its last four characters      count     how many
    at         text   ISO 8601 event time, UTC when it names no zone              total     money
    sent_at    number epoch milliseconds: when the triggering record was produced
    holds      boolean, false where this version withdraws the alert
    transactions   the evidence in full, a list of objects: tx_id, at, amount, merchant, lat, lon
    home_lat, home_lon   where the card's holder lives

Every other field, and a known one of an unexpected kind, is shown generically as text. All that leaves here
is bounded: texts are cut at TEXT_LENGTH_MAX, lists and fields at a count. NaN and infinities are not JSON.
The card's full id is masked wherever it appears, an alert id that was built from it included.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NoReturn

VALUE_BYTES_MAX: Final = 256 * 1024
"""A larger value is not parsed: no alert needs it, and the page would not show it."""
TEXT_LENGTH_MAX: Final = 300
EVIDENCE_COUNT_MAX: Final = 50
OTHER_FIELD_COUNT_MAX: Final = 20
BROWSER_INTEGER_MAX: Final = 2**53 - 1
MASKED_CARD_LENGTH_MIN: Final = 5
"""Shorter card ids than this are all "last four characters", so there is nothing to mask elsewhere."""

_KNOWN_FIELDS: Final = frozenset(
    {
        *("alert_id", "rule", "card_id", "tx_id", "at", "count", "evidence", "total", "sent_at"),
        *("holds", "transactions", "home_lat", "home_lon"),
    }
)
DEFAULT_WORDS: Final[Mapping[str, str]] = {"velocity": "{count} transactions in 1 minute"}
"""Rules in words; `{name}` is replaced by the alert's field of that name."""
NO_RULE: Final = "no_rule"
"""The words of this name are for alerts that name no rule."""
_PLACEHOLDER: Final = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRecord:
    """One record of the alerts topic, as it was read."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int | None
    """The record's own timestamp, None where it has none."""
    received_ms: int
    """When the console read it."""
    live: bool
    """False for what was on the topic before the console looked: its latency can't be known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceEvent:
    """One event of the evidence, in full."""

    name: str | None
    at_ms: int | None
    amount: float | None
    what: str | None
    place: tuple[float, float] | None
    """Latitude and longitude."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """An alert, bounded and masked."""

    alert_id: str | None
    rule: str | None
    words: str
    """The rule in words: `7 transactions in 1 minute`."""
    card: str | None
    trigger: str | None
    at_ms: int | None
    total: float | None
    sent_at_ms: int | None
    evidence: tuple[str, ...]
    evidence_count: int
    """How many there were before the list was cut."""
    other: tuple[tuple[str, str], ...]
    events: tuple[EvidenceEvent, ...] = ()
    home: tuple[float, float] | None = None
    holds: bool = True
    """False where the alert was withdrawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Undecodable:
    """A record that is not an alert, and why."""

    reason: str
    preview: str


class _NotAnAlert(Exception):
    """Carries the reason from the parser to `decode`."""


def decode(
    record: AlertRecord, words: Mapping[str, str] = DEFAULT_WORDS
) -> tuple[Alert | Undecodable, str | None]:
    """What the record says, and its alert id in full, unmasked, where it has one."""
    try:
        fields = _parse(record.value)
    except _NotAnAlert as reason:
        return Undecodable(reason=str(reason), preview=_preview(record.value)), None
    alert_id = _identifier(fields.get("alert_id"))
    return _alert(fields, alert_id, words), alert_id


def mask(card_id: str) -> str:
    """The last four characters of a card's id."""
    return f"•••• {card_id[-4:]}"


def _parse(value: bytes | None) -> dict[str, object]:
    if value is None:
        raise _NotAnAlert("the record has no value (a tombstone)")
    if len(value) > VALUE_BYTES_MAX:
        raise _NotAnAlert(f"the value has {len(value):,} bytes; at most {VALUE_BYTES_MAX:,} are read")
    try:
        parsed = json.loads(value.decode("utf-8"), parse_constant=_refuse_constant, parse_float=_finite)
    except UnicodeDecodeError as error:
        raise _NotAnAlert(f"the value is not UTF-8 (byte {error.start})") from error
    except (ValueError, RecursionError) as error:
        raise _NotAnAlert(f"the value is not JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise _NotAnAlert(f"the value is a JSON {_KINDS[type(parsed)]} where an object was expected")
    return parsed


_KINDS: Final[dict[type, str]] = {
    list: "array",
    str: "string",
    int: "number",
    float: "number",
    bool: "boolean",
    type(None): "null",
}


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:20]} does not fit a number")
    return number


def _preview(value: bytes | None) -> str:
    return _cut((value or b"")[: TEXT_LENGTH_MAX * 4].decode("utf-8", errors="replace"))


def _alert(fields: dict[str, object], alert_id: str | None, words: Mapping[str, str]) -> Alert:
    card_id = _identifier(fields.get("card_id"))

    def shown(text: str) -> str:
        if card_id is not None and len(card_id) >= MASKED_CARD_LENGTH_MIN:
            text = text.replace(card_id, mask(card_id))
        return _cut(text)

    evidence = _evidence(fields.get("evidence"))
    rule = _identifier(fields.get("rule"))
    trigger = _identifier(fields.get("tx_id"))
    return Alert(
        alert_id=shown(alert_id) if alert_id else None,
        rule=shown(rule) if rule else None,
        words=shown(_words(rule, fields, words)),
        card=_cut(mask(card_id)) if card_id else None,
        trigger=shown(trigger) if trigger else None,
        at_ms=instant_ms(fields.get("at")),
        total=_amount(fields.get("total")),
        sent_at_ms=_whole(fields.get("sent_at")),
        evidence=tuple(shown(item) for item in evidence[:EVIDENCE_COUNT_MAX]),
        evidence_count=len(evidence),
        events=tuple(_event(item, shown) for item in _objects(fields.get("transactions"))),
        home=place_of(fields, "home_lat", "home_lon"),
        holds=fields.get("holds") is not False,
        other=tuple((shown(name), shown(text)) for name, text in _other(fields)),
    )


def _words(rule: str | None, fields: dict[str, object], words: Mapping[str, str]) -> str:
    """The rule's own words, where all that they speak of is there; else its name."""
    template = words.get(rule or NO_RULE, "")
    named = {name: _in_words(fields.get(name)) for name in _PLACEHOLDER.findall(template)}
    if template and None not in named.values():
        return _PLACEHOLDER.sub(lambda found: named[found.group(1)] or "", template)
    if rule is None:
        return "Alert without a rule"
    plain = rule.replace("_", " ").replace("-", " ")
    return plain[:1].upper() + plain[1:]


def _in_words(value: object) -> str | None:
    """A number as people write it, or a text; None for what is neither."""
    if isinstance(value, str):
        return value
    number = _amount(value)
    if number is None:
        return None
    decimals = 0 if number == int(number) or abs(number) >= 100 else 2
    return f"{number:,.{decimals}f}"


def _event(item: dict[str, object], shown: Callable[[str], str]) -> EvidenceEvent:
    name, what = _identifier(item.get("tx_id")), _identifier(item.get("merchant"))
    return EvidenceEvent(
        name=shown(name) if name else None,
        at_ms=instant_ms(item.get("at")),
        amount=_amount(item.get("amount")),
        what=shown(what) if what else None,
        place=place_of(item, "lat", "lon"),
    )


def _objects(value: object) -> list[dict[str, object]]:
    found = value if isinstance(value, list) else []
    return [item for item in found[:EVIDENCE_COUNT_MAX] if isinstance(item, dict)]


def place_of(
    fields: Mapping[str, object], latitude: str | None, longitude: str | None
) -> tuple[float, float] | None:
    """Where it happened; None where that is not said, or not on this planet."""
    north, east = _amount(fields.get(latitude or "")), _amount(fields.get(longitude or ""))
    if north is None or east is None or not (abs(north) <= 90 and abs(east) <= 180):
        return None
    return round(north, 4), round(east, 4)


def _other(fields: dict[str, object]) -> list[tuple[str, str]]:
    """The fields that have no place of their own on the page, as text."""
    unplaced = [name for name, value in fields.items() if not _has_place(name, value)]
    return [(name, _text(fields[name])) for name in unplaced[:OTHER_FIELD_COUNT_MAX]]


def _has_place(name: str, value: object) -> bool:
    return name in _KNOWN_FIELDS and _IS_EXPECTED.get(name, _is_identifier)(value)


def _is_identifier(value: object) -> bool:
    return _identifier(value) is not None


def _identifier(value: object) -> str | None:
    """A text or a whole number that names something; None for an empty text and for anything else."""
    if isinstance(value, str):
        return value or None
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else None


def _whole(value: object) -> int | None:
    """A number whose whole part a browser can hold exactly."""
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > BROWSER_INTEGER_MAX:
        return None
    return int(value)


def _amount(value: object) -> float | None:
    """A number that a browser can show: an integer that no float can hold is shown as text instead."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def instant_ms(value: object) -> int | None:
    """Milliseconds since 1970 of an ISO 8601 text; None for anything else."""
    if not isinstance(value, str):
        return None
    try:
        instant = datetime.fromisoformat(value)
        return round((instant if instant.tzinfo else instant.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError):
        return None


def _evidence(value: object) -> list[str]:
    return [_text(item) for item in value] if isinstance(value, list) else []


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return "(nested too deeply to be shown)"


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_LENGTH_MAX else text[: TEXT_LENGTH_MAX - 1] + "…"


_IS_EXPECTED: Final[Mapping[str, Callable[[object], bool]]] = {
    "evidence": lambda value: isinstance(value, list),
    "transactions": lambda value: isinstance(value, list),
    "holds": lambda value: isinstance(value, bool),
    "at": lambda value: instant_ms(value) is not None,
    "count": lambda value: _whole(value) is not None,
    "sent_at": lambda value: _whole(value) is not None,
    "total": lambda value: _amount(value) is not None,
    "home_lat": lambda value: value is None or _amount(value) is not None,
    "home_lon": lambda value: value is None or _amount(value) is not None,
}
"""Whether a field is of the kind that has a place; those that are not named here are identifiers."""
