"""Commands as forms."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from headrace.console.event_forms import command_of, form_of
from headrace.errors import EventsError


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Order something.

    What else is said is for programmers.
    """

    item: str
    count: int
    at: datetime
    weight: float = 1.0
    is_gift: bool = False
    note: str | None = None
    parts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Untold:
    item: str


def test_a_form_asks_for_each_field_as_its_type_wants() -> None:
    form = form_of(Order)
    assert (form["name"], form["doc"]) == ("Order", "Order something.")
    assert {each["name"]: (each["kind"], each["is_needed"]) for each in form["fields"]} == {
        "item": ("text", True),
        "count": ("integer", True),
        "at": ("moment", True),
        "weight": ("number", False),
        "is_gift": ("flag", False),
        "note": ("text", False),
        "parts": ("json", False),
    }


def test_a_command_without_words_has_none() -> None:
    assert form_of(Untold)["doc"] == ""


def test_what_was_filled_in_becomes_a_command() -> None:
    filled = {"item": "pen", "count": 2, "at": "2026-03-01T09:30:00.000Z", "parts": ["cap"]}
    assert command_of(Order, filled) == Order(
        item="pen", count=2, at=datetime(2026, 3, 1, 9, 30, tzinfo=UTC), parts=("cap",)
    )


@pytest.mark.parametrize(
    ("change", "named"), [({"count": "two"}, "count"), ({"at": "soon"}, "at"), ({"item": None}, "item")]
)
def test_a_field_that_can_not_be_is_named(change: dict[str, object], named: str) -> None:
    filled = {"item": "pen", "count": 2, "at": "2026-03-01T09:30:00Z", **change}
    with pytest.raises(EventsError, match=rf"Order can't be made of that: .*\.{named}"):
        command_of(Order, filled)


def test_a_field_that_is_missing_is_named() -> None:
    with pytest.raises(EventsError, match="item"):
        command_of(Untold, {})
