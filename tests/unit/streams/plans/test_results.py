"""How results are to be compared."""

from __future__ import annotations

import json
from typing import Any

from headrace.streams.plans.results import (
    AWAITED_KEY,
    CORRECTED_KEY,
    FIRING_KEY,
    IDENTITY_KEY,
    REMOVED_KEY,
    TOLD_BESIDE_KEY,
    UPDATES_NAME,
    Results,
    is_row_by_row,
    results_of,
)
from headrace.streams.plans.tree import read_plan


def results(plan: Any, *columns: Any) -> Results:
    numbers = {column[0]["exprId"]["id"]: column[0]["name"] for column in columns}
    return results_of(read_plan(json.dumps(plan)), numbers)


def grouped(make: Any) -> tuple[Any, Any, Any, Any]:
    """SELECT id, sum(amount) AS total GROUP BY id, with the topic's columns and the result's."""
    card, amount = make.attribute("id", "string"), make.attribute("amount")
    total = make.alias(make.aggregate_of("Sum", make.same(amount)), "total")
    plan = make.aggregate(make.source(card, amount), [make.same(card)], [make.same(card), total])
    return plan, card, amount, total


def test_rows_that_are_treated_one_by_one_are_compared_as_rows(maker: Any) -> None:
    card = maker.attribute("id", "string")
    plan = maker.project(maker.source(card), maker.same(card))

    assert results(plan, card).way == "rows"
    assert is_row_by_row(read_plan(json.dumps(plan)))


def test_an_aggregate_is_compared_by_its_key(maker: Any) -> None:
    plan, card, amount, _ = grouped(maker)

    found = results(plan, card, amount)

    assert (found.way, found.identity, found.is_filtered) == ("latest", ("id",), False)
    assert not is_row_by_row(read_plan(json.dumps(plan)))


def test_a_key_keeps_its_place_under_another_name_and_behind_a_filter(maker: Any) -> None:
    plan, card, amount, total = grouped(maker)
    condition = maker.node("GreaterThan", maker.same(total), maker.literal(1))
    filtered = maker.node("Filter", plan, condition=condition)
    renamed = maker.project(filtered, maker.alias(maker.same(card), "card"), maker.same(total))

    found = results(renamed, card, amount)

    assert (found.identity, found.is_filtered) == (("card",), True)


def test_a_key_that_is_not_returned_leaves_only_the_final_results_to_look_for(maker: Any) -> None:
    plan, card, amount, total = grouped(maker)

    assert results(maker.project(plan, maker.same(total)), card, amount).way == "contained"


def test_a_key_that_is_changed_is_no_key(maker: Any) -> None:
    plan, card, amount, total = grouped(maker)
    changed = maker.alias(maker.node("Lower", maker.same(card), child=0), "id")

    assert results(maker.project(plan, changed, maker.same(total)), card, amount).way == "contained"


def updates(make: Any) -> Any:
    """The updates of a history, of which there may be more or fewer."""
    card = make.attribute("id", "string")
    history = make.alias(make.aggregate_of("CollectList", make.same(card)), UPDATES_NAME)
    window = make.node("Window", make.source(card), windowExpressions=[history], child=0)
    return read_plan(json.dumps(make.project(window, make.same(card))))


def test_how_many_updates_of_a_history_there_are_can_not_be_computed_a_second_time(maker: Any) -> None:
    refused = {"hr.recent, by which rows came together,"}

    assert results_of(updates(maker), {}).uncertain_rows == refused
    # A leaderboard of them has keys, and what is in it depends on how many there were.
    assert results_of(updates(maker), {}, {"id": {IDENTITY_KEY: 1}}).uncertain_rows == refused


def test_what_corrects_itself_is_compared_by_the_last_version_that_holds(maker: Any) -> None:
    marks: dict[str, dict[str, Any]] = {
        "id": {IDENTITY_KEY: 1, CORRECTED_KEY: True},
        "holds": {REMOVED_KEY: "false"},
        "sent_at": {TOLD_BESIDE_KEY: True},
    }
    plan = updates(maker)

    found = results_of(plan, {}, marks)

    assert (found.way, found.identity, found.is_filtered) == ("latest", ("id",), False)
    assert (found.removed, found.removed_value) == ("holds", "false")
    assert found.uncertain == {"sent_at": {"hr.corrected, by which rows came together,"}}
    assert not found.uncertain_rows
    assert not found.is_windowed


def test_rows_that_a_join_gives_when_time_has_come_so_far_may_have_been_given_earlier(maker: Any) -> None:
    card = maker.attribute("id", "string")
    plan = read_plan(json.dumps(maker.project(maker.source(card), maker.same(card))))

    assert results_of(plan, {}, {"id": {AWAITED_KEY: True}}).is_windowed


def test_a_window_is_told_by_its_start(maker: Any) -> None:
    at = maker.attribute("at", "timestamp")
    window = maker.alias(maker.node("CreateNamedStruct", maker.same(at)), "window")
    rows = maker.project(maker.source(at), window)
    plan = maker.aggregate(rows, [maker.same(window)], [maker.same(window)])
    start = maker.alias(maker.node("GetStructField", maker.same(window), child=0, name="start"), "minute")

    assert results(maker.project(plan, start), at).identity == ("minute",)


def test_rows_that_are_taken_apart_behind_an_aggregate_have_no_key(maker: Any) -> None:
    plan, card, amount, _ = grouped(maker)
    exploded = maker.node("Generate", plan, generator=maker.node("Explode", maker.same(amount)))

    assert results(exploded, card, amount).way == "contained"


def test_a_table_that_is_aggregated_on_its_own_leaves_rows_to_be_compared_as_rows(maker: Any) -> None:
    card, other = maker.attribute("id", "string"), maker.attribute("id", "string")
    table = maker.aggregate(maker.node("LocalRelation", output=[other]), [maker.same(other)], [])
    plan = maker.node("Join", maker.source(card), table, joinType={"object": "x.Inner$"})

    assert results(plan, card).way == "rows"


def test_columns_that_can_not_be_computed_twice_are_named_with_the_function(maker: Any) -> None:
    card = maker.attribute("id", "string")
    seen = maker.alias(maker.node("CurrentTimestamp"), "seen")
    plan = maker.project(maker.source(card), maker.same(card), seen)

    assert results(plan, card).uncertain == {"seen": frozenset({"current_timestamp"})}


def test_what_operators_of_our_own_give_is_told_apart_by_what_they_say(maker: Any) -> None:
    game, rank = maker.attribute("game", "string"), maker.attribute("rank", "integer")
    plan = read_plan(json.dumps(maker.project(maker.source(game, rank), maker.same(game), maker.same(rank))))
    board: dict[str, dict[str, Any]] = {
        "game": {IDENTITY_KEY: 2},
        "rank": {IDENTITY_KEY: 2},
        "removed": {REMOVED_KEY: True},
    }

    found = results_of(plan, {}, board)
    assert (found.way, found.identity, found.removed) == ("latest", ("game", "rank"), "removed")
    assert not found.is_windowed
    # Without the rank, nobody knows which of a game's results is which.
    assert results_of(plan, {}, {name: board[name] for name in ("game", "removed")}).way == "rows"

    windows = results_of(plan, {}, {"window": {IDENTITY_KEY: 1}, "firing": {FIRING_KEY: True}})
    assert (windows.is_windowed, windows.removed, set(windows.uncertain)) == (True, None, {"firing"})
