"""Classes of events: what is said of them, and what can't be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from headrace import events
from headrace.errors import EventsError
from headrace.events.event_type import FORGOTTEN, event_type_of


@dataclass(frozen=True)
class Moved:
    """Somebody lives elsewhere."""

    customer: str
    address: str
    phone: str | None
    age: int = 0


class Packed(msgspec.Struct, frozen=True):
    """A Struct is an event as well."""

    weight: int


class Derived(Packed, frozen=True):
    """Has a name of its own."""


def test_what_is_not_said_goes_without_saying() -> None:
    described = event_type_of(Moved)

    assert (described.name, described.version, dict(described.personal)) == ("Moved", 1, {})
    assert event_type_of(Packed).name == "Packed"


def test_a_description_is_not_inherited() -> None:
    events.event("Parcel", version=3)(Packed)
    try:
        assert event_type_of(Packed).name == "Parcel"
        assert event_type_of(Derived).name == "Derived"
    finally:
        del Packed.__headrace_event__  # type: ignore[attr-defined]


def described_as(**said: Any) -> events.EventType:
    """What becomes of a description of a copy of Moved."""
    copy: Any = dataclass(frozen=True)(
        type("Moved", (), {"__annotations__": Moved.__annotations__, "age": 0})
    )
    copy.__module__ = __name__
    return event_type_of(events.event(**said)(copy))


def test_tags_are_made_of_fields_or_by_a_function() -> None:
    event = Moved(customer="7", address="x", phone=None)

    by_field = described_as(tags=("customer", "age")).tags_of
    assert by_field is not None
    assert list(by_field(event)) == ["customer:7", "age:0"]
    by_function = described_as(tags=lambda event: [f"at:{event.address}"]).tags_of
    assert by_function is not None
    assert list(by_function(event)) == ["at:x"]


def test_placeholders_fit_the_fields() -> None:
    described = described_as(personal={"address", "phone", "age"}, subject="customer", forgotten={"age": -1})

    assert described.forgotten == {"address": FORGOTTEN, "phone": None, "age": -1}


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"version": 0}, "count from 1"),
        ({"tags": ("nowhere",)}, "nowhere"),
        ({"personal": {"nowhere"}, "subject": "customer"}, "nowhere"),
        ({"personal": {"address"}}, "say whose 'address'"),
        ({"personal": {"address"}, "subject": "nowhere"}, "say whose"),
        ({"personal": {"address", "customer"}, "subject": "customer"}, "personal itself"),
        ({"personal": {"age"}, "subject": "customer"}, "reads as once its person is forgotten"),
    ],
)
def test_what_can_not_be_said_is_refused(said: dict[str, Any], reason: str) -> None:
    with pytest.raises(EventsError, match=reason):
        described_as(**said)


def test_what_is_no_class_of_fields_is_no_event() -> None:
    with pytest.raises(EventsError, match="frozen dataclass"):
        event_type_of(dict)
