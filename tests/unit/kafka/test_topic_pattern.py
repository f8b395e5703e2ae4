"""Regular expressions over topic names, held against Python's own for whatever both understand."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import ConfigError
from headrace.kafka.groups.consumer.pattern import LENGTH_MAX, TopicPattern

names = st.text("abAB1._-x", max_size=8)
atoms = st.sampled_from(
    [
        r"a",
        r"b",
        r"x",
        r"1",
        r"-",
        r"B",
        r".",
        r"\.",
        r"[ab]",
        r"[^a]",
        r"[a-c.]",
        r"[]a]",
        r"[\w.]",
        r"\w",
        r"\W",
        r"\d",
        r"\D",
        r"\b",
        r"^",
        r"$",
        r"\A",
        r"\x61",
        r"(?i:A)",
        r"(a|b)",
        r"(?:ab|)",
        r"(?P<n>a)",
    ]
)
repeats = st.sampled_from(["", "", "", "*", "+", "?", "{2}", "{0,2}", "{1,}", "*?", "+?"])


def sequences(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(st.tuples(parts, repeats).map("".join), max_size=4).map("".join)


def alternatives(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return sequences(atoms | st.lists(inner, min_size=1, max_size=3).map(lambda each: f"({'|'.join(each)})"))


def is_understood_by_python(expression: str) -> bool:
    """Python does not repeat places, and gives a name once."""
    try:
        re.compile(expression)
    except re.error:
        return False
    return True


expressions = st.recursive(sequences(atoms), alternatives, max_leaves=6).filter(is_understood_by_python)


@settings(max_examples=400)
@given(expression=expressions, texts=st.lists(names, min_size=1, max_size=5))
def test_what_matches_is_what_matches_anywhere_else(expression: str, texts: list[str]) -> None:
    expected = re.compile(expression)
    pattern = TopicPattern(expression)
    assert [pattern.matches(text) for text in texts] == [bool(expected.fullmatch(text)) for text in texts]


@settings(max_examples=300)
@given(expression=st.text(r"ab\pPxQEdDwzb{}[]()|*+?.^$,-:<>iP=!#1&é\n", max_size=20), text=names)
def test_any_text_is_an_expression_or_is_refused_with_a_reason(expression: str, text: str) -> None:
    try:
        is_match: bool | str = TopicPattern(expression).matches(text)
    except ConfigError as error:
        is_match = str(error)
    assert is_match != ""


@pytest.mark.parametrize(
    ("expression", "matching", "other"),
    [
        ("", "", "a"),
        ("orders", "orders", "orders2"),
        (r"orders\..*", "orders.eu", "orders"),
        (r"\Qa.b\E", "a.b", "axb"),
        (r"\Qa.b", "a.b", "axb"),
        ("(?i)abc|d", "D", "e"),
        ("(?i:a)b", "Ab", "AB"),
        ("(?i)a(?-i)b", "Ab", "AB"),
        (r"\pL+", "abc", "a1"),
        (r"\p{Lu}\P{Lu}", "Ab", "AB"),
        (r"\p{^Lu}", "a", "A"),
        (r"\p{Latin}+", "az", "a-z"),
        ("[[:digit:]]{2}", "42", "4a"),
        ("[[:^digit:]]+", "a.b", "a1"),
        ("a{,2}", "", "a"),
        (r"a\x{62}", "ab", "aB"),
        (r"\Aab\z", "ab", "abc"),
        (r"[a\-]+", "a-", "b"),
        (r"x\s*", "x", "x-"),
        (r"a\Bb", "ab", "a-b"),
        (r"\B", "", "a"),
    ],
)
def test_the_syntax_is_that_of_re2(expression: str, matching: str, other: str) -> None:
    pattern = TopicPattern(expression)
    if expression != "a{,2}":  # A brace that repeats nothing stands for itself, and is in no topic's name.
        assert pattern.matches(matching)
    assert not pattern.matches(other)


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("a(", "missing closing )"),
        ("a)", "unexpected )"),
        ("[a", "missing closing ]"),
        ("[[:foo:]]", "invalid character class range: [:foo:]"),
        ("[z-a]", "invalid character class range"),
        (r"[a-\d]", "invalid character class range"),
        (r"\p{Greek}", r"invalid character class range: \p{Greek}"),
        ("*a", "missing argument to repetition operator: *"),
        ("a**", "invalid nested repetition operator: *"),
        ("a{2,1}", "invalid repeat count: {2,1}"),
        ("a{1001}", "invalid repeat count: {1001}"),
        (r"(a)\1", r"invalid escape sequence: \1"),
        (r"\y", r"invalid escape sequence: \y"),
        ("a\\", "trailing \\ at end of expression"),
        ("(?=a)b", "invalid or unsupported Perl syntax"),
        ("(?<!a)b", "invalid or unsupported Perl syntax"),
        ("(a{1000}){1000}", "expression is too large"),
        ("((){1000}){1000}", "expression is too large"),
        ("(" * 200 + ")" * 200, "expression nests too deeply"),
        ("a" * (LENGTH_MAX + 1), f"expression is longer than {LENGTH_MAX} characters"),
    ],
)
def test_what_re2_does_not_understand_or_is_too_large_is_refused(expression: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        TopicPattern(expression)
    assert str(caught.value) == reason


@pytest.mark.parametrize(
    "expression", ["(a+)+", "(a|a)*", "(a*)*b", "((a?){30}){30}", "(.*a){20}", "(a|a?)+$"]
)
def test_no_expression_takes_long(expression: str) -> None:
    """Matchers that try one way after the other would need longer than the universe has existed."""
    pattern = TopicPattern(expression)
    pattern.matches("a" * 248 + "-")
    assert not pattern.matches("a" * 248 + "-")


def test_an_expression_holds_for_any_number_of_names() -> None:
    pattern = TopicPattern("(orders|refunds)[.-][0-9]{1,5}")
    assert sum(pattern.matches(f"orders.{number}") for number in range(3_000)) == 3_000
    assert sum(pattern.matches(f"payments.{number}") for number in range(3_000)) == 0
