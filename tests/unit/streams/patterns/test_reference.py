"""Matches equal those of a naive search, whatever the pattern, the rows, and how batches are cut."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from headrace.errors import PipelineError
from headrace.streams.patterns.skipping import all_matches, non_overlapping, skip_to_first, skip_to_last
from headrace.streams.patterns.so_far import MatchSoFar, Row

FEW = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

steps = st.sampled_from("abc")
quantifiers = st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{2,}", "{,2}"])
lazy = st.sampled_from(["", "?"])


def joined(items: Sequence[str]) -> str:
    return " ".join(items)


patterns = st.recursive(
    steps,
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=3).map(joined),
        st.tuples(inner, st.sampled_from(["!a", "!b", "..", "!b !c"]), inner).map(joined),
        st.lists(inner, min_size=2, max_size=3).map(lambda branches: f"({' | '.join(branches)})"),
        st.tuples(inner, quantifiers, lazy).map(lambda parts: f"({parts[0]}){parts[1]}{parts[2]}"),
    ),
    max_leaves=5,
)
emits = st.sampled_from([non_overlapping, all_matches, skip_to_first("b"), skip_to_last("b")])
names = st.sampled_from(["", "a", "b", "c", "ab", "ac", "bc"])


def rising(row: Row, match: MatchSoFar) -> bool:
    previous = match.previous
    return previous is None or bool(row["amount"] > previous["amount"])


def not_too_much(row: Row, match: MatchSoFar) -> bool:
    return bool(row["amount"] + match.sum("amount", "a") <= 5 or match.count("b") > 1)


@FEW
@given(data=st.data())
def test_matches_are_those_of_a_naive_search(
    data: st.DataObject, start: Callable[..., Any], row: Callable[..., Any], naive: Callable[..., Any]
) -> None:
    tail = data.draw(st.sampled_from(["", "", " !a", " !b !c"]))
    within = data.draw(st.sampled_from([0, 2, 5, None]))
    functions = data.draw(
        st.sampled_from([{}, {}, {"b": rising}, {"a": not_too_much}, {"a": rising, "c": not_too_much}])
    )
    asked = {
        "within": within,
        "emit": data.draw(emits),
        "contiguity": data.draw(st.sampled_from(["strict", "relaxed"])),
        "limit": data.draw(st.sampled_from([1, 3, 1_000])),
        "is_by_arrival": data.draw(st.booleans()),
        "timed_out": data.draw(st.booleans()),
        "functions": functions,
    }
    run = start(data.draw(patterns) + tail, **asked)
    try:
        run.search.logic()
    except PipelineError:
        # The pattern says what can't be meant: that is tested elsewhere.
        assume(False)
    drawn = data.draw(
        st.lists(
            st.tuples(st.sampled_from(["x", "y", None]), st.integers(0, 4), names, st.integers(0, 4)),
            max_size=16,
        )
    )
    rows, now = [], 0
    for number, (key, step, of, amount) in enumerate(drawn):
        now += step
        # Some are out of order, and some of those too late.
        rows.append(row(key, now - (amount if step == 4 else 0), of, number, amount))
    cuts = data.draw(st.lists(st.integers(0, len(rows)), max_size=4).map(sorted))

    for begin, end in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        run.step(rows[begin:end])
    run.step(is_end=True)

    on_time = [each for each in rows if each.id not in run.late_ids]
    assert Counter(run.found) == Counter(naive(run.search, on_time))
    assert run.state["rows"].num_rows == run.state["waiting"].num_rows == 0


@settings(FEW, max_examples=50)
@given(data=st.data())
def test_matches_of_equal_rows_are_told_apart_however_batches_are_cut(
    data: st.DataObject, start: Callable[..., Any], row: Callable[..., Any]
) -> None:
    rows = data.draw(
        st.lists(
            st.builds(row, st.sampled_from("xy"), st.integers(0, 2), st.sampled_from(["a", "b", "ab"])),
            max_size=12,
        )
    )
    pattern, emit = data.draw(st.sampled_from(["a", "a b", "a+ b", "a .. b"])), data.draw(emits)
    cuts = data.draw(st.lists(st.integers(0, len(rows)), max_size=4).map(sorted))
    whole, cut = (start(pattern, emit=emit) for _ in range(2))
    whole.step(rows)
    whole.step(is_end=True)
    for begin, end in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        cut.step(rows[begin:end])
    cut.step(is_end=True)

    # No row is late: all are within the delay of the watermark.
    assert len(set(whole.ids)) == len(whole.ids)
    assert Counter(whole.ids) == Counter(cut.ids)
