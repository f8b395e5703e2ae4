"""Rows in requests, and what a server says of them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.streams.sinks.opensearch.bulk import (
    Action,
    Outcome,
    in_requests,
    judge,
    lines_of,
    version_of,
)

ROW = Action(id="[1]", row='{"id":1}')
DELETE = Action(id="[2]", row=None)


@given(st.tuples(st.integers(1, 2**23 - 1), st.integers(0, 2**40 - 1)), st.integers(1, 2**23 - 1))
def test_a_later_run_has_newer_versions_whatever_the_batch(last: tuple[int, int], run: int) -> None:
    assert (version_of(*last) < version_of(run, 0)) == (last[0] < run)
    assert 0 < version_of(*last) < 2**63


def test_a_row_and_a_deletion_are_sent_with_their_version() -> None:
    first, row, second, *rest = lines_of([ROW, DELETE], 7).decode().splitlines()
    about = {"version": 7, "version_type": "external_gte"}
    assert json.loads(first) == {"index": {"_id": "[1]", **about}}
    assert row == ROW.row
    assert (json.loads(second), rest) == ({"delete": {"_id": "[2]", **about}}, [])
    assert lines_of([ROW], 7).endswith(b"\n")


@given(st.lists(st.integers(0, 30)), st.integers(1, 5), st.integers(1, 50))
def test_requests_hold_all_rows_in_order_and_no_more_than_they_may(
    lengths: list[int], actions_max: int, bytes_max: int
) -> None:
    actions = [Action(id=str(number), row="x" * length) for number, length in enumerate(lengths)]
    requests = list(in_requests(actions, actions_max=actions_max, bytes_max=bytes_max))
    assert [action for request in requests for action in request] == actions
    for request in requests:
        size_bytes = sum(len(action.id) + len(action.row or "") for action in request)
        assert len(request) == 1 or (len(request) <= actions_max and size_bytes <= bytes_max)


@pytest.mark.parametrize(
    ("action", "status", "kind", "outcome"),
    [
        (ROW, 201, "", Outcome.DONE),
        (ROW, 200, "", Outcome.DONE),
        (DELETE, 200, "", Outcome.DONE),
        (DELETE, 404, "", Outcome.DONE),
        (DELETE, 404, "index_not_found_exception", Outcome.GONE),
        (ROW, 404, "index_not_found_exception", Outcome.GONE),
        (ROW, 409, "version_conflict_engine_exception", Outcome.NEWER),
        (DELETE, 409, "version_conflict_engine_exception", Outcome.NEWER),
        (ROW, 429, "rejected_execution_exception", Outcome.AGAIN),
        (ROW, 503, "unavailable_shards_exception", Outcome.AGAIN),
        (ROW, 400, "mapper_parsing_exception", Outcome.REFUSED),
        (ROW, 500, "unknown", Outcome.FAILED),
        (ROW, 403, "security_exception", Outcome.FAILED),
        (ROW, 403, "cluster_block_exception", Outcome.AGAIN),
        (ROW, 400, "index_closed_exception", Outcome.AGAIN),
    ],
)
def test_what_has_become_of_a_row_is_told_by_its_status(
    action: Action, status: int, kind: str, outcome: Outcome
) -> None:
    error = {"error": {"type": kind, "reason": "why", "caused_by": {"reason": "really"}}} if kind else {}
    (judged,) = judge({"items": [{"index": {"status": status, **error}}]}, [action])
    assert (judged.action, judged.outcome) == (action, outcome)
    assert judged.words == ("why; really" if kind else str(status))


@pytest.mark.parametrize("answer", [{}, {"items": []}, {"items": None}])
def test_an_answer_that_does_not_tell_of_each_row_is_none(answer: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="does not tell of each row"):
        judge(answer, [ROW])
