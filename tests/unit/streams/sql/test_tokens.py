"""SQL as tokens."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import SqlError
from headrace.streams.sql.tokens import name_text, place, string_text, tokenize

PIECES = st.sampled_from(
    [
        "select",
        "a_1",
        "1e9",
        "1.5",
        "`a``b`",
        "'it''s'",
        r"'a\'b'",
        '"x"',
        r"r'\'",
        "(",
        ")",
        ",",
        ";",
        "<",
        ".",
    ]
)
SPACES = st.sampled_from(
    [" ", "\n", "\t", " -- all; 'this\n", " /* and ; this */ ", " /* nested /* ' */ */ "]
)


@given(st.lists(st.tuples(PIECES, SPACES)))
def test_tokens_are_what_lies_between_space_and_comments(parts: list[tuple[str, str]]) -> None:
    text = "".join(piece + space for piece, space in parts)
    tokens = tokenize(text)
    assert [token.text for token in tokens] == [piece for piece, _ in parts]
    assert all(text[token.start : token.end] == token.text for token in tokens)


@given(st.text(min_size=1))
def test_a_name_in_backticks_is_one_token_that_stands_for_it(name: str) -> None:
    (token,) = tokenize(name_text(name))
    assert (token.kind, token.value) == ("quoted", name)


@given(st.text())
def test_a_string_in_quotes_is_one_token_that_stands_for_it(value: str) -> None:
    (token,) = tokenize(string_text(value))
    assert (token.kind, token.value) == ("string", value)


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("1abc", ["word"]),
        ("1e9", ["number"]),
        ("a.b", ["word", "symbol", "word"]),
        ("r'x'", ["string"]),
        ("r 'x'", ["word", "string"]),
    ],
)
def test_words_numbers_and_strings_are_told_apart(text: str, kinds: list[str]) -> None:
    found = [token.kind for token in tokenize(text)]
    assert found[: len(kinds)] == kinds


@pytest.mark.parametrize("text", ["select 'a", "select\n  `a", "a /* b", "a /* /* */"])
def test_what_has_no_end_is_told_with_its_place(text: str) -> None:
    with pytest.raises(SqlError, match=r"line \d, column \d+: .* has no end"):
        tokenize(text)


def test_a_place_counts_from_one() -> None:
    assert place("ab\ncd", 4) == "line 2, column 2"
