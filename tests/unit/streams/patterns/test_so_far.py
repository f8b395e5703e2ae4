"""What conditions can ask about the match so far, compared with plain lists."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace.streams.patterns.so_far import Link, MatchSoFar


@given(
    taken=st.lists(st.tuples(st.sampled_from("ab"), st.none() | st.integers(-9, 9)), max_size=12),
    asked=st.lists(st.tuples(st.sampled_from(["a", "b", "c", None]), st.integers(0, 12)), max_size=6),
)
def test_answers_are_those_of_lists_whatever_was_asked_before(
    taken: list[tuple[str, int | None]], asked: list[tuple[str | None, int]]
) -> None:
    links: list[Link | None] = [None]
    for place, (name, value) in enumerate(taken):
        links.append(Link(links[-1], bit=0, place=place, name=name, row={"n": value}))
    for by_name, count in asked:
        match = MatchSoFar.up_to(links[min(count, len(taken))])
        rows: list[dict[str, Any]] = [{"n": value} for by, value in taken[:count] if by_name in {None, by}]
        values = [row["n"] for row in rows if row["n"] is not None]
        assert match.rows(by_name) == rows
        assert match.values("n", by_name) == values
        assert match.first(by_name) == (rows[0] if rows else None)
        assert match.last(by_name) == (rows[-1] if rows else None)
        assert match.count(by_name) == len(rows)
        assert match.sum("n", by_name) == sum(values)
        assert match.mean("n", by_name) == (sum(values) / len(values) if values else None)
        assert match.min("n", by_name) == min(values, default=None)
        assert match.max("n", by_name) == max(values, default=None)


def test_a_match_so_far_can_be_made_of_rows_to_test_a_condition() -> None:
    match = MatchSoFar([("a", {"n": 1}), ("b", {"n": 2})])
    assert match.previous == {"n": 2}
    assert match.first("a") == {"n": 1}
    assert MatchSoFar().previous is None
