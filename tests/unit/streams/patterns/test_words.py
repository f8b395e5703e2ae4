"""Patterns that fit a bounded history: their words find what a search finds, when its last row is there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from headrace.errors import PipelineError
from headrace.streams.patterns.skipping import all_matches
from headrace.streams.patterns.words import Word, first_word, words_of

FEW = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
WITHIN = 5

quantifiers = st.sampled_from(["?", "{2}", "{1,2}", "{,2}", "{1,3}", "??", "{1,2}?", "{,2}?", "{1,3}?"])
patterns = st.recursive(
    st.sampled_from("abc"),
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=3).map(" ".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda branches: f"({' | '.join(branches)})"),
        st.tuples(inner, quantifiers).map(lambda parts: f"({parts[0]}){parts[1]}"),
    ),
    max_leaves=5,
)
names = st.sampled_from(["", "a", "b", "c", "ab", "ac", "bc", "abc"])


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("a{3} b", ["a a a b"]),
        ("(a | b) c{1,2}? d", ["a c d", "b c d", "a c c d", "b c c d"]),
        # What begins with a word that comes first never counts.
        ("a b{,2}?", ["a"]),
        ("b | a b | b", ["b", "a b"]),
    ],
)
def test_a_pattern_is_written_out_by_length_and_preference(pattern: str, words: list[str]) -> None:
    assert [" ".join(word) for word in words_of(pattern)] == words


def last_rows(words: Sequence[Word], rows: Sequence[Any]) -> list[tuple[Any, ...]]:
    """What ends with the last of these rows, looking at as many as the longest word has."""
    rows = rows[-max(map(len, words)) :]
    found = []
    for start, first in enumerate(rows):
        seen = []
        for row in rows[start:]:
            if row.at > first.at + WITHIN:
                break
            seen.append(row)
        word = first_word(words, [frozenset(row.names) for row in seen])
        if word is not None and start + len(word) == len(rows):
            taken = seen[: len(word)]
            times = [row.at for row in taken]
            evidence = tuple((name, row.id) for name, row in zip(word, taken, strict=True))
            found.append((first.key, "match", min(times), max(times), evidence))
    return found


@FEW
@given(data=st.data())
def test_each_match_is_known_with_its_last_row_and_equals_that_of_a_search(
    data: st.DataObject, start: Callable[..., Any], row: Callable[..., Any], naive: Callable[..., Any]
) -> None:
    pattern = data.draw(patterns)
    try:
        words = words_of(pattern)
    except PipelineError:
        assume(False)
    drawn = data.draw(st.lists(st.tuples(st.integers(0, 3), names), max_size=14))
    rows: list[Any] = []
    run = start(pattern, within=WITHIN, emit=all_matches, is_by_arrival=True)
    now, found = 0, []
    for number, (step, of) in enumerate(drawn):
        now += step
        # Some happened before the row that they came behind, and none so long that it is late.
        rows.append(row("x", now - number % 3, of, number))
        at_once = last_rows(words, rows)
        assert Counter(run.step([rows[-1]])) == Counter(at_once)
        found += at_once
    assert Counter(found) == Counter(naive(run.search, rows))
