"""Processes forget persons: the contract in memory, and what is taken out of a document."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.events import event
from headrace.events.codec import EventCodec
from headrace.events.processes.forgetting import personal_texts, standing, without
from headrace.events.projections import MemoryPlace
from headrace.testing.forgetful_processes import ForgetfulProcessContract


class TestMemory(ForgetfulProcessContract):
    @pytest.fixture
    def place(self) -> MemoryPlace:
        return MemoryPlace()


def test_a_short_text_is_taken_out_only_where_it_stands_alone() -> None:
    data = json.dumps({"age": "42", "stream": "account-42", "list": ["42", 42]}).encode()

    assert json.loads(without(data, ["42"])) == {
        "age": "[forgotten]",
        "stream": "account-42",
        "list": ["[forgotten]", 42],
    }


def test_a_longer_text_is_taken_out_of_sentences_but_not_of_words() -> None:
    data = json.dumps({"Anna": "Anna, Annabel and (Anna)"}).encode()

    assert json.loads(without(data, ["Anna"])) == {
        "[forgotten]": "[forgotten], Annabel and ([forgotten])",
    }


def test_what_stands_under_keys_that_are_forgotten_is_kept() -> None:
    data = json.dumps({"[forgotten]": 1, "Anna": 2, "Bob": 4, "Eve": {"Anna": 8}}).encode()

    assert json.loads(without(data, ["Anna", "Bob"])) == {
        "[forgotten]": 1,
        "[forgotten] 2": 2,
        "[forgotten] 3": 4,
        "Eve": {"[forgotten]": 8},
    }


def test_a_text_that_is_part_of_what_reads_as_forgotten_is_taken_out_once() -> None:
    data = json.dumps(["forgotten", "[forgotten]", "is forgotten"]).encode()
    after = without(data, ["forgotten"])

    assert json.loads(after) == ["[forgotten]", "[forgotten]", "is [forgotten]"]
    assert standing(after, ["forgotten"]) == set()


def test_where_not_all_fits_each_place_has_what_fits() -> None:
    document = {"name": "Anna", "born": "1815-12-10", "sign": "leo", "when": "1815-12-10", "a": ["Anna"] * 9}

    def fits(data: bytes) -> bool:
        read = json.loads(data)
        return (
            re.fullmatch(r"\d{4}-\d\d-\d\d", read["born"] or "") is not None
            and read["sign"] == "leo"
            and (read["when"] is None or read["when"] == "1815-12-10")
        )

    texts = ["Anna", "1815-12-10", "leo"]
    after = without(json.dumps(document).encode(), texts, fits=fits, instead=["0001-01-01"])

    assert json.loads(after) == {
        "name": "[forgotten]",
        "born": "0001-01-01",
        "sign": "leo",
        "when": None,
        "a": ["[forgotten]"] * 9,
    }
    assert standing(after, texts) == {"leo"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    city: str
    lived_there: tuple[date, ...]


@event(personal={"name", "homes"}, subject="guest", forgotten={"homes": {}})
@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    guest: str
    name: str
    homes: dict[str, Address]


def test_keys_of_personal_mappings_are_personal_but_names_of_fields_are_not() -> None:
    homes = {"at sea": Address(city="Nan\0tes", lived_there=(date(1815, 12, 10),))}
    found = personal_texts(EventCodec([Moved]), Moved(guest="g1", name="Anna", homes=homes))

    assert found == {"g1": {"Anna", "at sea", "Nan", "tes", "1815-12-10"}}


DOCUMENTS = st.recursive(
    st.none() | st.integers(-10, 10) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
)


@given(document=DOCUMENTS, text=st.text(min_size=1, max_size=8))
def test_no_value_is_the_text_afterwards_and_others_stay(document: object, text: str) -> None:
    after = json.loads(without(json.dumps(document).encode(), [text]))

    assert not any(each == text for each in _texts(after)) or text == "[forgotten]"
    if not any(text in each for each in _texts(document)):
        assert after == document


def _texts(value: object) -> list[str]:
    match value:
        case str():
            return [value]
        case list():
            return [text for each in value for text in _texts(each)]
        case dict():
            return [text for pair in value.items() for each in pair for text in _texts(each)]
        case _:
            return []
