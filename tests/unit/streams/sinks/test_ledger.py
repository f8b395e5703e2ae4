"""What the ledger of an exactly-once topic says, entry by entry."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import PipelineError, PipelineReplaced
from headrace.streams.sinks.ledger import (
    Batch,
    Entry,
    Verdict,
    begun_task_count,
    check_all,
    claim_before,
    decide,
    entry_after,
    is_settled,
    read_entry,
    refuse_replaced,
)

BATCH = Batch(pipeline="copies", query_id="q", batch_id=7, digest="d7", is_first=False)
FIRST = replace(BATCH, is_first=True)
WRITTEN = entry_after(BATCH, 2)


def test_a_share_of_which_nothing_is_known_is_written() -> None:
    assert decide(None, BATCH, 2) is Verdict.WRITE


def test_a_share_is_written_after_those_of_earlier_batches() -> None:
    for next_batch_id in (1, 7):
        assert decide(replace(WRITTEN, next_batch_id=next_batch_id), BATCH, 2) is Verdict.WRITE


def test_an_earlier_batch_may_have_been_spread_differently() -> None:
    assert decide(replace(WRITTEN, next_batch_id=7, task_count=1, digest="d6"), BATCH, 2) is Verdict.WRITE


def test_a_share_that_was_written_is_skipped() -> None:
    assert decide(WRITTEN, BATCH, 2) is Verdict.SKIP
    assert decide(WRITTEN, FIRST, 2) is Verdict.SKIP


def test_a_checkpoint_that_was_put_back_is_refused_with_what_to_do() -> None:
    told = (
        r"copies can't go on with batch 7, because batch 9 was written already: its checkpoint was put back"
        r".* Bring the newest checkpoint back"
    )
    with pytest.raises(PipelineError, match=told):
        decide(replace(WRITTEN, next_batch_id=10), FIRST, 2)


def test_a_batch_with_the_same_id_and_other_input_is_refused() -> None:
    with pytest.raises(PipelineError, match="batch 7 was written already, with other input"):
        decide(replace(WRITTEN, digest="other"), FIRST, 2)


def test_a_share_whose_input_real_time_mode_gave_up_is_written_anew() -> None:
    given_up = replace(FIRST, given_up=frozenset({"older", "other"}))
    assert decide(replace(WRITTEN, digest="other"), given_up, 3) is Verdict.WRITE
    assert begun_task_count([replace(WRITTEN, digest="other")], given_up) is None
    with pytest.raises(PipelineError, match="was written already, with other input"):
        decide(replace(WRITTEN, digest="another"), given_up, 2)
    with pytest.raises(PipelineError, match="was put back"):
        decide(replace(WRITTEN, digest="other", next_batch_id=10), given_up, 2)


def test_a_batch_that_was_given_up_and_is_there_again_with_the_same_input_is_skipped() -> None:
    assert decide(WRITTEN, replace(FIRST, given_up=frozenset({WRITTEN.digest})), 2) is Verdict.SKIP


def test_a_query_that_begins_afresh_takes_over_and_one_that_had_the_ledger_does_not() -> None:
    foreign, told = replace(WRITTEN, query_id="another"), r"another run of pipeline copies .* claim\.json"
    assert decide(foreign, FIRST, 2) is Verdict.WRITE
    for replaced in (BATCH, replace(FIRST, has_claimed=True)):
        with pytest.raises(PipelineReplaced, match=told):
            decide(foreign, replaced, 2)
    refuse_replaced([None, foreign], FIRST)
    refuse_replaced([None, WRITTEN], replace(FIRST, has_claimed=True))
    with pytest.raises(PipelineReplaced):
        refuse_replaced([WRITTEN, foreign], replace(FIRST, has_claimed=True))


def test_a_share_that_was_claimed_is_written() -> None:
    claim = claim_before(FIRST, 2)
    assert decide(claim, BATCH, 2) is Verdict.WRITE
    assert decide(claim, BATCH, 3) is Verdict.WRITE
    assert begun_task_count([claim], BATCH) is None
    assert is_settled([claim, WRITTEN], BATCH, 2)
    assert read_entry("copies", claim.next_batch_id, claim.metadata) == claim


def test_a_batch_that_was_begun_with_another_spread_is_refused() -> None:
    with pytest.raises(PipelineError, match="was begun with 2 writers and can't be finished with 3"):
        decide(WRITTEN, FIRST, 3)


def test_a_pipeline_that_begins_afresh_is_written_whatever_another_checkpoint_has_left() -> None:
    assert decide(replace(WRITTEN, query_id="former", next_batch_id=99), FIRST, 2) is Verdict.WRITE


def test_a_second_run_from_another_checkpoint_is_noticed() -> None:
    with pytest.raises(PipelineError, match="another run of pipeline copies"):
        decide(replace(WRITTEN, query_id="other"), BATCH, 2)


@given(
    next_batch_id=st.integers(0, 2**62),
    query_id=st.uuids().map(str),
    task_count=st.integers(1, 10_000),
    digest=st.text("0123456789abcdef", min_size=1, max_size=16) | st.just("-"),
)
def test_an_entry_is_read_as_it_was_committed(
    next_batch_id: int, query_id: str, task_count: int, digest: str
) -> None:
    entry = Entry(next_batch_id=next_batch_id, query_id=query_id, task_count=task_count, digest=digest)
    assert read_entry("copies", entry.next_batch_id, entry.metadata) == entry


def test_nothing_committed_is_no_entry() -> None:
    assert read_entry("copies", -1001, None) is None


@pytest.mark.parametrize("metadata", [None, "", "headrace", "headrace 2 q 2 d", "headrace 1 q two d"])
def test_offsets_that_somebody_else_has_committed_to_the_group_are_refused(metadata: str | None) -> None:
    with pytest.raises(PipelineError, match=r"group headrace\.copies .* holds an offset of somebody else"):
        read_entry("copies", 5, metadata)


def test_a_batch_of_which_a_share_is_written_is_finished_with_as_many_tasks() -> None:
    older = replace(WRITTEN, next_batch_id=7, task_count=2)
    assert begun_task_count([None, older, replace(WRITTEN, task_count=4)], BATCH) == 4
    assert begun_task_count([None, older], BATCH) is None
    assert begun_task_count([replace(WRITTEN, query_id="other")], BATCH) is None


def test_shares_are_settled_when_each_has_an_entry_of_this_query_and_spread() -> None:
    assert is_settled([WRITTEN, replace(WRITTEN, next_batch_id=3)], BATCH, 2)
    assert not is_settled([WRITTEN, None], BATCH, 2)
    assert not is_settled([WRITTEN, replace(WRITTEN, query_id="other")], BATCH, 2)
    assert not is_settled([WRITTEN, replace(WRITTEN, task_count=1)], BATCH, 2)


def test_a_checkpoint_that_was_put_back_is_refused_before_any_share_is_written() -> None:
    quiet, busy = replace(WRITTEN, next_batch_id=3), replace(WRITTEN, next_batch_id=BATCH.batch_id + 3)
    with pytest.raises(PipelineError, match="its checkpoint was put back"):
        check_all([quiet, None, busy], BATCH, 2)
    check_all([quiet, None, WRITTEN], BATCH, 2)
