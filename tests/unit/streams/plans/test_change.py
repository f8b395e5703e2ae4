"""What a change of a pipeline means for its checkpoint."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from headrace.streams.plans import Change, Description, Operator, Part, changes


def part(text: str, typed: str | None = None, definition: str | None = None) -> Part:
    typed = typed or f"{text}: double"
    return Part(text=text, typed=typed, definition=definition or f"orders.{typed}")


def aggregate(*state: Part, keys: tuple[Part, ...] = (part("id"),)) -> Operator:
    return Operator(kind="aggregate", keys=keys, state=state)


def plan(*operators: Operator, **fields: Any) -> Description:
    made = Description(
        sources=("orders",),
        operators=operators,
        shuffle_partition_count=2,
        output_mode="update",
        watermarks={},
    )
    return replace(made, **fields)


SUM, COUNT, MAX = part("sum(amount)"), part("count(1)"), part("max(amount)")
KEPT = plan(aggregate(SUM, COUNT))
DEDUP = Operator(kind="dropDuplicates", keys=(part("id"),), state=())


def only(now: Description, kept: Description = KEPT) -> Change:
    (change,) = changes(kept, now)
    return change


def test_nothing_has_changed() -> None:
    assert changes(KEPT, KEPT) == []


@pytest.mark.parametrize(
    ("now", "what"),
    [
        (plan(aggregate(SUM)), "the aggregate by id no longer keeps count(1)"),
        (plan(aggregate(SUM, COUNT, MAX)), "the aggregate by id keeps max(amount) in addition"),
        (plan(aggregate(COUNT, SUM)), "in another order than sum(amount), count(1)"),
        (
            plan(aggregate(part("sum(amount)", "sum(amount: decimal)"), COUNT)),
            "keeps sum(amount) in another type: sum(amount: decimal)",
        ),
        (plan(aggregate(SUM, COUNT, keys=(part("day"),))), "the aggregate is by day instead of id"),
        (
            plan(aggregate(SUM, COUNT, keys=(part("id"), part("day")))),
            "the aggregate is by id, day instead of id",
        ),
        (
            plan(aggregate(SUM, COUNT, keys=(part("id", "id: double", "lower(orders.id)"),))),
            "its key id is made in another way",
        ),
        (
            plan(aggregate(SUM, COUNT, keys=(part("id", "id: string"),))),
            "its key has another type: id: string instead of id: double",
        ),
        (plan(), "the aggregate by id is gone"),
        (plan(DEDUP, aggregate(SUM, COUNT)), "the dropDuplicates by id is new"),
        (plan(aggregate(SUM, COUNT), sources=("orders", "more")), "the topic more is read in addition"),
        (plan(aggregate(SUM, COUNT), output_mode="append"), "the output mode is append instead of update"),
    ],
)
def test_a_checkpoint_does_not_survive(now: Description, what: str) -> None:
    change = only(now)

    assert change.breaking
    assert what in change.what
    assert change.advice


@pytest.mark.parametrize(
    ("now", "what"),
    [
        (
            plan(aggregate(part("sum(amount)", None, "sum((amount * 100))"), COUNT)),
            "what sum(amount) is made of has changed",
        ),
        (
            plan(aggregate(SUM, COUNT), shuffle_partition_count=8),
            "shuffle_partition_count is 8 instead of 2",
        ),
        (
            plan(aggregate(SUM, COUNT), watermarks={"orders.at": "1 hour"}),
            "the watermark of orders.at is 1 hour instead of none",
        ),
    ],
)
def test_a_checkpoint_survives_and_the_change_is_told(now: Description, what: str) -> None:
    change = only(now)

    assert not change.breaking
    assert what in change.what


def test_a_sum_that_became_a_maximum_of_the_same_type_breaks() -> None:
    found = changes(KEPT, plan(aggregate(MAX, COUNT)))

    assert {change.what for change in found if change.breaking} == {
        "the aggregate by id no longer keeps sum(amount)",
        "the aggregate by id keeps max(amount) in addition",
    }


def test_a_column_that_only_has_another_name_changes_nothing() -> None:
    renamed = Part(text="sum(value)", typed="sum(value: double)", definition=SUM.definition)
    key = Part(text="card", typed="card: double", definition=part("id").definition)

    assert changes(KEPT, plan(aggregate(renamed, COUNT, keys=(key,)))) == []


def test_another_topic_is_one_gone_and_one_new() -> None:
    found = changes(KEPT, plan(aggregate(SUM, COUNT), sources=("returns",)))

    assert [change.what for change in found] == [
        "the topic orders is no longer read",
        "the topic returns is read in addition",
    ]


def test_topics_in_another_order_break_because_offsets_are_kept_by_it() -> None:
    kept = plan(sources=("a", "b"))

    assert "in another order: b, a instead of a, b" in only(plan(sources=("b", "a")), kept).what


def test_operators_in_another_order_break() -> None:
    kept, now = plan(DEDUP, aggregate(SUM)), plan(aggregate(SUM), DEDUP)

    assert only(now, kept).what == "the order of dropDuplicates, aggregate has changed"


def test_a_pipeline_without_state_may_change_its_settings() -> None:
    now = plan(shuffle_partition_count=8, watermarks={"orders.at": "1 hour"})

    assert changes(plan(), now) == []


def test_a_watermark_that_is_gone_breaks_because_state_would_stay_for_ever() -> None:
    kept = replace(KEPT, watermarks={"orders.at": "1 hour"})

    assert only(KEPT, kept).breaking


def test_state_that_was_made_for_another_setting_breaks() -> None:
    first = Operator(kind="deduplication", keys=(part("id"),), state=(), settings={"ttl": "1 day"})
    kept, now = plan(first), plan(replace(first, settings={"ttl": "2 days", "retract": "True"}))
    assert [(change.what, change.breaking) for change in changes(kept, now)] == [
        ("the deduplication by id has another retract: True instead of not set", True),
        ("the deduplication by id has another ttl: 2 days instead of 1 day", True),
    ]


def test_settings_that_were_not_noted_down_are_not_compared() -> None:
    now = replace(DEDUP, settings={"ttl": "1 day"})
    assert changes(plan(DEDUP), plan(now)) == []


def test_what_breaks_comes_first() -> None:
    now = plan(aggregate(SUM), shuffle_partition_count=8)

    assert [change.breaking for change in changes(KEPT, now)] == [True, False]


@pytest.mark.parametrize("seed", range(300))
def test_any_change_of_what_is_kept_or_by_what_is_found(seed: int) -> None:
    """Whatever is changed, added, left out or moved: only equal layouts may go on."""
    chance = random.Random(seed)
    pool = [part(name) for name in ("sum(a)", "count(1)", "max(a)", "sum(b)", "avg(a)")]

    def operator() -> Operator:
        keys = tuple(chance.sample([part("id"), part("day"), part("shop")], chance.randint(1, 2)))
        return Operator(
            kind=chance.choice(["aggregate", "dropDuplicates"]),
            keys=keys,
            state=tuple(chance.sample(pool, chance.randint(0, 3))),
        )

    kept = plan(*(operator() for _ in range(chance.randint(0, 2))))
    now = plan(*(operator() for _ in range(chance.randint(0, 2)))) if chance.random() < 0.9 else kept

    assert any(change.breaking for change in changes(kept, now)) == (kept.operators != now.operators)
