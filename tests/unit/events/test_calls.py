"""What goes to PostgreSQL for an append: texts, and statements with numbered places."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import EventsError
from headrace.events.appending import _new_ids
from headrace.events.postgres.calls import SEPARATOR, arguments, arguments_of_one
from headrace.events.postgres.prepared import numbered
from headrace.events.records import Append
from headrace.testing.journals import command, new, to

NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\x1e"), min_size=1, max_size=9)


def test_places_are_numbered_in_their_order() -> None:
    assert numbered(b"SELECT f(%s, %s, %s)") == b"SELECT f($1, $2, $3)"


@given(types=st.lists(NAMES, min_size=1, max_size=5))
def test_one_append_says_once_what_all_of_its_events_have_alike(types: list[str]) -> None:
    append = Append(writes=(to("a-1", *[new(each) for each in types], expected=3),), command=command("c"))

    alone, grouped = arguments_of_one(append, alike_once=True), arguments([append])

    assert alone is not None
    assert (alone[0], alone[3:6]) == (grouped[0], [grouped[5], grouped[6], grouped[7]])
    assert (alone[6], alone[9]) == (grouped[8], grouped[11])  # ids and data
    assert grouped[9] == SEPARATOR.join(types).encode()
    assert alone[7] == (types[0].encode() if len(set(types)) == 1 else grouped[9])
    assert [alone[8], *alone[10:]] == [b"1", b'{"actor":"me"}', b"{}", b"{}"]
    # As functions of an older version want it.
    whole = arguments_of_one(append, alike_once=False)
    assert whole is not None
    assert whole[6:] == grouped[8:]


def test_an_append_without_events_has_empty_columns() -> None:
    assert arguments_of_one(Append(writes=(to("a-1"),)), alike_once=True) == [
        None,
        None,
        b"a",
        b"a-1",
        b"-1",
        b"0",
        *[b""] * 7,
    ]


@pytest.mark.parametrize("name", ["half \ud800 of one", "a\x1eb", "a\0b"])
def test_a_text_that_cannot_be_stored_is_refused_alone_and_in_a_group(name: str) -> None:
    append = Append(writes=(to("a-1", new()),), command=command(name))

    with pytest.raises(EventsError, match="can't be stored"):
        arguments_of_one(append, alike_once=True)
    with pytest.raises(EventsError, match="can't be stored"):
        arguments([append, append])


@pytest.mark.parametrize("data", [b'{"b":{}}\x1e{"amount":5}', b'{"b":1}\0'])
def test_data_that_would_be_taken_apart_is_refused_alone_and_in_a_group(data: bytes) -> None:
    append = Append(writes=(to("a-1", new("Happened", data), new()),))

    with pytest.raises(EventsError, match="can't be stored"):
        arguments_of_one(append, alike_once=True)
    with pytest.raises(EventsError, match="can't be stored"):
        arguments([append, append])


def test_new_ids_are_random_uuids() -> None:
    made = [UUID(each) for each in _new_ids(100)]

    assert {(each.version, each.variant) for each in made} == {(4, "specified in RFC 4122")}
    assert len(set(made)) == 100
    assert _new_ids(0) == []
