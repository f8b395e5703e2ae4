"""What is different between what was computed and what was written, and why."""

from __future__ import annotations

import random
from collections import Counter
from types import MappingProxyType
from typing import Any

import pytest

from headrace.streams.comparison import (
    UNKNOWN_WRITER,
    Circumstances,
    Comparison,
    Difference,
    Explanation,
    Tally,
    explain,
    is_close,
    judge,
    judge_left_off,
    tally,
)

NOTHING = Circumstances()
ALL_KINDS: Any = frozenset({"missing", "unexpected", "duplicate", "changed"})


def differences(
    computed: str, written: str, known: Circumstances = NOTHING, *explanations: Explanation
) -> list[Difference]:
    return judge(tally(computed, written), explanations, known)


def only(computed: str, written: str, known: Circumstances = NOTHING) -> Difference:
    (difference,) = differences(computed, written, known)
    return difference


def by_key(computed: str | None, written: str | None) -> Tally:
    return Tally(
        identity="k",
        topic="out",
        key="k",
        computed=computed,
        written=written,
        computed_count=int(computed is not None),
        written_count=int(written is not None),
    )


def test_equal_multisets_have_no_differences() -> None:
    assert differences("aab", "aba") == []


def test_a_result_that_was_not_written_is_missing() -> None:
    found = only("ab", "a")

    assert (found.kind, found.count, found.judgement, found.cause) == ("missing", 1, "wrong", None)


def test_a_result_that_is_written_too_often_is_a_duplicate() -> None:
    found = only("a", "aaa")

    assert (found.kind, found.count, found.judgement) == ("duplicate", 2, "wrong")


def test_duplicates_are_no_error_where_the_guarantee_allows_them() -> None:
    found = only("a", "aa", Circumstances(may_repeat=True))

    assert found.judgement == "expected"
    assert found.cause is not None
    assert "at-least-once" in found.cause


def test_a_result_that_is_not_computed_is_unexpected_even_where_duplicates_are_allowed() -> None:
    found = only("a", "ab", Circumstances(may_repeat=True))

    assert (found.kind, found.judgement, found.cause) == ("unexpected", "undecided", UNKNOWN_WRITER)


def test_losses_are_no_error_where_the_guarantee_allows_them() -> None:
    assert only("ab", "a", Circumstances(may_lose=True)).judgement == "expected"
    assert only("a", "aa", Circumstances(may_lose=True)).judgement == "wrong"


def test_results_that_were_deleted_leave_it_undecided() -> None:
    found = only("ab", "a", Circumstances(results_deleted="perhaps it was deleted"))

    assert (found.judgement, found.cause) == ("undecided", "perhaps it was deleted")


def test_a_topic_that_others_write_leaves_it_undecided() -> None:
    known = Circumstances(shared_with=("copies",))

    assert only("a", "ab", known).judgement == "undecided"
    assert only("ab", "a", known).judgement == "wrong"


def test_changed_code_is_named_as_what_may_be_the_cause() -> None:
    found = only("a", "b" + "a", Circumstances(code_changed="it has changed since it was last run"))

    assert found.cause == "perhaps written by other code: it has changed since it was last run"


def test_of_a_key_the_values_are_compared() -> None:
    assert by_key("1", "1").kind is None
    assert by_key("1", "2").kind == "changed"
    assert by_key("1", None).kind == "missing"
    assert by_key(None, "2").kind == "unexpected"


def test_a_key_whose_newer_results_are_filtered_out_is_undecided() -> None:
    (found,) = judge([by_key(None, "2")], (), Circumstances(filters_results=True))

    assert found.judgement == "undecided"


def test_a_result_of_a_key_may_belong_to_a_batch_that_is_not_finished() -> None:
    (found,) = judge([by_key("1", "2")], (), Circumstances(in_progress=True))

    assert found.judgement == "undecided"


@pytest.mark.parametrize(
    ("one", "other", "close"),
    [
        ('{"total": 0.30000000000000004}', '{"total": 0.3}', True),
        ('{"total": 3.0}', '{"total": 3}', True),
        ('{"total": 1.000000001}', '{"total": 1.0}', True),
        ('{"total": 0.3001}', '{"total": 0.3}', False),
        ('{"id": "a", "total": 1.0}', '{"id": "b", "total": 1.0}', False),
        ('{"parts": [1.0, {"x": 0.1}]}', '{"parts": [1.0, {"x": 0.10000000000000002}]}', True),
        ('{"parts": [1.0]}', '{"parts": [1.0, 2.0]}', False),
        ('{"total": 1}', '{"total": 2}', False),
        ('{"total": 1.0}', '{"total": "1.0"}', False),
        ("no json", "none either", False),
        (None, "{}", False),
    ],
)
def test_the_last_digits_of_a_sum_don_t_count(one: str | None, other: str | None, *, close: bool) -> None:
    assert is_close(one, other) == close


def test_a_cause_accounts_for_no_more_than_it_can() -> None:
    known = Explanation(cause="late", kinds=frozenset({"missing"}), judgement="expected", counts={"a": 2})

    found = differences("aaaa", "a", NOTHING, known)

    assert [(each.count, each.judgement, each.cause) for each in found] == [
        (2, "expected", "late"),
        (1, "wrong", None),
    ]


def test_a_cause_of_losses_does_not_account_for_what_is_too_much() -> None:
    known = Explanation(cause="late", kinds=frozenset({"missing"}), judgement="expected", counts={"a": 2})

    assert [each.judgement for each in differences("a", "aa", NOTHING, known)] == ["wrong"]


@pytest.mark.parametrize(
    ("computed", "written", "alternative", "explained"),
    [
        ("2", "1", ("1", 1), 1),
        ("2", "1", ("3", 1), 0),
        ("2", None, (None, 0), 1),
        (None, "1", ("1", 1), 1),
    ],
)
def test_by_key_a_cause_is_known_if_the_other_computation_gives_what_was_written(
    computed: str | None, written: str | None, alternative: tuple[str | None, int], explained: int
) -> None:
    known = explain(
        [by_key(computed, written)],
        {"k": alternative} if alternative[1] else {},
        by_key=True,
        cause="late",
        kinds=ALL_KINDS,
        judgement="expected",
    )

    assert sum(known.counts.values()) == explained


def test_a_comparison_is_equal_only_if_nothing_is_wrong_or_undecided() -> None:
    def verdict(*found: Difference, left_off: Any = MappingProxyType({})) -> str:
        return Comparison(
            way="rows", computed_count=1, written_count=1, differences=found, left_off=left_off
        ).verdict

    allowed = only("a", "aa", Circumstances(may_repeat=True))
    open_one = only("ab", "a", Circumstances(results_deleted="gone"))
    assert verdict() == "equal"
    assert verdict(allowed) == "equal"
    assert verdict(allowed, open_one) == "undecided"
    assert verdict(open_one, only("ab", "a")) == "different"
    assert verdict(allowed, left_off={"expected": 7}) == "equal"
    assert verdict(allowed, left_off={"undecided": 1}) == "undecided"
    assert verdict(only("ab", "a"), left_off={"expected": 7}) == "different"


def test_differences_that_are_too_many_to_list_are_judged_by_what_the_guarantee_allows() -> None:
    repeats = Circumstances(may_repeat=True)

    assert judge_left_off({"duplicate": 5000}, repeats) == {"expected": 5000}
    assert judge_left_off({"duplicate": 5000, "missing": 3}, repeats) == {"expected": 5000, "undecided": 3}
    assert judge_left_off({"duplicate": 2}, NOTHING) == {"undecided": 2}
    assert judge_left_off({}, NOTHING) == {}


def test_a_result_that_a_batch_that_is_not_finished_may_have_deleted_is_undecided() -> None:
    (kept,) = judge([by_key("1", None)], (), Circumstances(in_progress=True))
    (deleted,) = judge([by_key("1", None)], (), Circumstances(in_progress=True, deletes_results=True))

    assert (kept.judgement, deleted.judgement) == ("wrong", "undecided")


@pytest.mark.parametrize("seed", range(300))
def test_differences_account_for_every_record(seed: int) -> None:
    """Computed, less what is missing, plus what is too much, is what was written."""
    chance = random.Random(seed)
    computed = [chance.choice("abcd") for _ in range(chance.randint(0, 12))]
    written = [chance.choice("abcd") for _ in range(chance.randint(0, 12))]
    known = Explanation(
        cause="known",
        kinds=ALL_KINDS,
        judgement="expected",
        counts={name: chance.randint(0, 3) for name in "ab"},
    )

    balance = Counter(computed)
    for each in judge(tally(computed, written), [known], NOTHING):
        name = each.computed or each.written
        assert name is not None
        balance[name] += -each.count if each.kind == "missing" else each.count

    assert +balance == Counter(written)


@pytest.mark.parametrize("seed", range(200))
def test_as_multisets_a_cause_never_explains_more_than_its_input_gives(seed: int) -> None:
    chance = random.Random(seed)
    computed = [chance.choice("abc") for _ in range(chance.randint(0, 9))]
    written = [chance.choice("abc") for _ in range(chance.randint(0, 9))]
    fewer = Counter(chance.sample(computed, chance.randint(0, len(computed))))
    tallies = list(tally(computed, written))

    known = explain(
        tallies,
        {name: (name, count) for name, count in fewer.items()},
        by_key=False,
        cause="left out",
        kinds=frozenset({"missing"}),
        judgement="expected",
    )
    found = judge(tallies, [known], NOTHING)

    left_out = Counter(computed) - fewer
    for name in "abc":
        explained = sum(each.count for each in found if each.computed == name and each.cause == "left out")
        missing = max(Counter(computed)[name] - Counter(written)[name], 0)
        assert explained == min(left_out[name], missing)


def test_what_the_order_of_arrival_may_account_for_is_undecided_where_that_is_not_known() -> None:
    known = Circumstances(arrival_unknown="the first batches are gone")
    for found in (only("ab", "a", known), only("a", "ab", known)):
        assert found.judgement == "undecided"
        assert found.cause is not None
        assert "the first batches are gone" in found.cause
