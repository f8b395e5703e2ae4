"""The language of patterns: what is understood, and what is refused with a sentence that helps."""

from __future__ import annotations

import pytest

from headrace.errors import PipelineError
from headrace.streams.patterns.normal_form import normal_form
from headrace.streams.patterns.program import compile_pattern
from headrace.streams.patterns.syntax import (
    Alternation,
    Gap,
    Repeat,
    Sequence,
    Step,
    names_of,
    parse,
    steps_of,
)


def test_a_pattern_is_read_as_it_is_written() -> None:
    assert parse("probe{3} big") == Sequence((Repeat(Step("probe"), 3, 3), Step("big")))
    assert parse("(a|b)+? !c\n d{2,}") == Sequence(
        (
            Repeat(Alternation((Step("a"), Step("b"))), 1, None, is_greedy=False),
            Gap(frozenset({"c"})),
            Repeat(Step("d"), 2, None),
        )
    )
    assert parse("größe_2 .. b?? c{,4}") == Sequence(
        (
            Step("größe_2"),
            Gap(frozenset()),
            Repeat(Step("b"), 0, 1, is_greedy=False),
            Repeat(Step("c"), 0, 4),
        )
    )
    assert parse("a{1}") == Step("a")
    assert names_of(parse("a !b (c | d)*")) == {"a", "b", "c", "d"}
    assert steps_of(parse("a !b (c | d)* .. e")) == {"a", "c", "d", "e"}


@pytest.mark.parametrize(
    ("pattern", "told"),
    [
        ("", "the pattern is ''"),
        ("a (b", "wrong at its end: a parenthesis is not closed"),
        ("a b)", r"wrong before '\)': there is nothing that it closes"),
        ("a | | b", r"before '\| b': a name is missing here"),
        ("* a", "write a name, or a group in parentheses"),
        ("a ++", "can't be repeated again"),
        ("a{}", r"say how often: \{3\}"),
        ("a{3,2}", "the smaller number first"),
        ("a{0}", "repeat at least once"),
        ("a{1001}", "at most 1,000 times"),
        ("a & b", "before '& b': this is no part of a pattern"),
        ("a !", "is missing after '!'"),
        ("a ! (b c)", "is missing after '!'"),
        ("!a b", "begins with '!' or '..'"),
        ("a ..", "ends with '..'"),
        ("a? b*", "can be matched by no row at all"),
        ("a (b?)* c", "repeats what can be no row at all"),
        ("a !b c? d", "let a step follow that is always there"),
        ("a (!b c | d)", "a group begins with '!'"),
        ("(a !b | d) c", "a group ends with '!'"),
        ("a (!b | c) d", "stands alone in parentheses"),
        ("(a{100}){101}", "more than 10,000 steps"),
    ],
)
def test_what_can_not_be_meant_is_refused(pattern: str, told: str) -> None:
    with pytest.raises(PipelineError, match=told):
        compile_pattern(normal_form(parse(pattern), "strict"), "abcd")
