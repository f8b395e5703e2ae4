"""Processes forget persons: the contract in memory, and what is taken out of a document."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.events.processes.forgetting import without
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
