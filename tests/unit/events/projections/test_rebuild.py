"""Read models made anew beside those that are read, and effects that fire once."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import NotYetProjected, ProjectionReplaced
from headrace.events import EventStore, MemoryJournal, Recorded
from headrace.events.projections import (
    Effect,
    GenerationState,
    MemoryPlace,
    MemoryWork,
    Poison,
    Projection,
    ReadModels,
)
from headrace.events.projections.place import live
from headrace.events.projections.source import page_reader
from headrace.events.subscription import Subscription
from headrace.testing.waiting import eventually


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    amount: int


def add(work: MemoryWork, event: Recorded) -> None:
    rows = work.tables["totals"]
    rows["all"] = rows.get("all", 0) + event.data.amount
    work.fire("mail", {"amount": event.data.amount})


def add_double(work: MemoryWork, event: Recorded) -> None:
    rows = work.tables["totals"]
    rows["all"] = rows.get("all", 0) + 2 * event.data.amount
    work.fire("mail", {"amount": event.data.amount})


ONE = Projection(name="sums", handle=add, batch_count_max=3)
TWO = Projection(name="sums", handle=add_double, version=2, batch_count_max=3)


class Post:
    """Where mails arrive."""

    def __init__(self) -> None:
        self.mails: list[Effect] = []

    def send(self, effect: Effect) -> None:
        self.mails.append(effect)


def models(store: EventStore, place: MemoryPlace, post: Post, projection: Projection) -> ReadModels:
    return ReadModels(store, place, [projection], senders={"mail": post.send})


@settings(max_examples=100, deadline=None)
@given(steps=st.lists(st.sampled_from(["write", "live", "build", "swap", "fire"]), min_size=8, max_size=40))
def test_rebuilds_at_any_moment_equal_a_replay_and_fire_each_effect_once(steps: list[str]) -> None:
    store, place, post = EventStore(MemoryJournal(), types=[Added]), MemoryPlace(), Post()
    both = models(store, place, post, ONE)
    subscription = Subscription(page_reader(store, ONE), place, ONE)
    count = 0
    for step in steps:
        if step == "write":
            count += 1
            store.append("sum-1", [Added(amount=count)])
        elif step == "live":
            subscription.run_once(live(place, "sums"))
        elif step == "build":
            subscription.run_once(place.build(ONE))
        elif step == "swap":
            both.rebuild("sums")
        else:
            both.fire_effects()
    both.rebuild("sums")
    both.catch_up()
    assert place.tables("sums").get("totals", {}).get("all", 0) == sum(range(1, count + 1))
    assert Counter(mail.payload["amount"] for mail in post.mails) == Counter(range(1, count + 1))
    assert len({mail.id for mail in post.mails}) == count


def test_other_code_does_not_touch_what_is_live_and_takes_over_by_a_rebuild() -> None:
    store, place, post = EventStore(MemoryJournal(), types=[Added]), MemoryPlace(), Post()
    old = models(store, place, post, ONE)
    store.append("sum-1", [Added(amount=1), Added(amount=2)])
    old.catch_up()
    new = models(store, place, post, TWO)
    store.append("sum-1", [Added(amount=4)])
    with pytest.raises(ProjectionReplaced, match="is at version 1, and this code is version 2: rebuild"):
        new.catch_up()
    assert place.tables("sums")["totals"]["all"] == 3
    made = new.rebuild("sums")
    assert (made.number, made.version, made.state) == (2, 2, GenerationState.LIVE)
    assert place.tables("sums")["totals"]["all"] == 14
    store.append("sum-1", [Added(amount=8)])
    with pytest.raises(ProjectionReplaced, match="is at version 2, and this code is version 1"):
        old.catch_up()
    new.catch_up()
    assert sorted(mail.payload["amount"] for mail in post.mails) == [1, 2, 4, 8]


def test_a_rebuild_that_was_interrupted_is_gone_on_with_and_one_by_other_code_is_given_up() -> None:
    store, place, post = EventStore(MemoryJournal(), types=[Added]), MemoryPlace(), Post()
    store.append("sum-1", [Added(amount=1)] * 5)
    old = models(store, place, post, ONE)
    old.catch_up()
    begun = place.build(ONE)
    Subscription(page_reader(store, ONE), place, ONE).run_once(begun)
    assert place.build(ONE) == live_or_building(place, 2)
    assert place.build(ONE).position == 3
    assert place.build(TWO).number == 3
    with pytest.raises(ProjectionReplaced, match="generation 2 of projection sums was replaced"):
        Subscription(page_reader(store, ONE), place, ONE).run_once(begun)


def live_or_building(place: MemoryPlace, number: int) -> object:
    return next(each for each in place.generations("sums") if each.number == number)


def test_effects_that_the_live_generation_fired_while_another_was_built_are_not_fired_again() -> None:
    store, place, post = EventStore(MemoryJournal(), types=[Added]), MemoryPlace(), Post()
    both = models(store, place, post, ONE)
    store.append("sum-1", [Added(amount=1)])
    # The building generation is ahead of the live one, so it holds the effect back.
    Subscription(page_reader(store, ONE), place, ONE).run_once(place.build(ONE))
    both.catch_up()
    assert len(post.mails) == 1
    both.rebuild("sums")
    both.catch_up()
    assert len(post.mails) == 1


def test_effects_of_a_new_read_model_over_old_events_can_be_left_out() -> None:
    store, place, post = EventStore(MemoryJournal(), types=[Added]), MemoryPlace(), Post()
    store.append("sum-1", [Added(amount=1), Added(amount=2), Added(amount=4)])
    sums = Projection(name="sums", handle=add, effects_after=2)
    models(store, place, post, sums).catch_up()
    assert [mail.payload["amount"] for mail in post.mails] == [4]


def test_an_effect_that_fails_is_tried_again_and_then_kept_with_its_cause() -> None:
    store, place = EventStore(MemoryJournal(), types=[Added]), MemoryPlace()
    store.append("sum-1", [Added(amount=1), Added(amount=2)])
    tried: list[int] = []

    def send(effect: Effect) -> None:
        tried.append(effect.payload["amount"])
        if effect.payload["amount"] == 1:
            raise ConnectionError("no route")

    both = ReadModels(store, place, [ONE], senders={"mail": send}, effect_attempt_count_max=3)
    both.catch_up()
    assert Counter(tried) == {1: 3, 2: 1}
    (failed,) = both.failed_effects("sums")
    assert (failed.cause, failed.attempt_count) == ("ConnectionError: no route", 3)
    assert place.fired_at("sums", failed.effect.id) is None


def test_an_effect_that_nobody_fires_is_kept_and_says_so() -> None:
    store, place = EventStore(MemoryJournal(), types=[Added]), MemoryPlace()
    store.append("sum-1", [Added(amount=1)])
    both = ReadModels(store, place, [ONE], senders={"call": lambda _: None}, effect_attempt_count_max=1)
    both.catch_up()
    assert "nobody fires effects of kind 'mail'" in both.failed_effects("sums")[0].cause


def test_waiting_for_a_position_returns_when_it_is_seen_and_says_what_was_not() -> None:
    store, place, post = EventStore(MemoryJournal(), types=[Added]), MemoryPlace(), Post()
    both = models(store, place, post, ONE)
    position = store.append("sum-1", [Added(amount=7)]).position
    with pytest.raises(NotYetProjected, match="sums is at position 0, and did not come to 1 within 0 s"):
        both.wait_for("sums", position, timeout_s=0)
    with both.running():
        assert both.wait_for("sums", position, timeout_s=60) == 1
        eventually(lambda: [mail.payload for mail in post.mails] == [{"amount": 7}], "the mail")
    assert place.tables("sums")["totals"]["all"] == 7


def test_a_running_projection_whose_code_is_new_is_rebuilt_while_others_write() -> None:
    store, place, post = EventStore(MemoryJournal(), types=[Added]), MemoryPlace(), Post()
    store.append("sum-1", [Added(amount=1)] * 50)
    models(store, place, post, ONE).catch_up()
    new = models(store, place, post, TWO)
    writing = threading.Thread(
        target=lambda: [store.append("sum-1", [Added(amount=1)]) for _ in range(100)], name="writer"
    )
    with new.running():
        writing.start()
        writing.join()
        new.wait_for("sums", 150, timeout_s=60)
        eventually(lambda: live(place, "sums").version == 2, "the swap")
        new.wait_for("sums", 150, timeout_s=60)
        eventually(lambda: len(post.mails) == 150, "all mails")
    assert place.tables("sums")["totals"]["all"] == 300
    assert len({mail.id for mail in post.mails}) == 150


def test_a_projection_that_stands_still_says_why_and_others_go_on() -> None:
    def fail(work: MemoryWork, event: Recorded) -> None:
        raise ValueError("no")

    store, place = EventStore(MemoryJournal(), types=[Added]), MemoryPlace()
    store.append("sum-1", [Added(amount=1)])
    bad = Projection(name="bad", handle=fail, poison=Poison(then="stop", attempt_count_max=1))
    both = ReadModels(store, place, [bad, ONE])
    with both.running():
        both.wait_for("sums", 1, timeout_s=60)
        eventually(lambda: both.status()[0].stopped is not None, "the stop")
    assert str(both.status()[0].stopped).startswith("ProjectionStopped: projection bad stands still at")
    assert both.status()[0].behind == 1
    assert both.status()[1].stopped is None
