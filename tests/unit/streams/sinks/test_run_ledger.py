"""What the ledger of a search index says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.errors import PipelineError, PipelineReplaced
from headrace.streams.sinks.ledger import Batch
from headrace.streams.sinks.run_ledger import Ledger, begun, is_written, swapped

FIRST = Batch(pipeline="products", query_id="q", batch_id=7, digest="d7", is_first=True)
BATCH = replace(FIRST, is_first=False)
PLACE = "the search index i"


def test_it_comes_back_as_it_was_kept() -> None:
    ledger = begun(None, FIRST, place=PLACE).after(FIRST)
    assert Ledger.from_document({**ledger.to_document(), "more": 1}) == ledger


def test_each_run_has_the_next_number_and_the_one_before_is_replaced() -> None:
    first = begun(None, FIRST, place=PLACE)
    assert not is_written(first, BATCH, first.run, place=PLACE)
    written = first.after(BATCH)
    assert is_written(written, BATCH, first.run, place=PLACE)
    second = begun(written, FIRST, place=PLACE)
    assert second.entry == written.entry, "what was written stays so"
    assert is_written(second, BATCH, second.run, place=PLACE)
    with pytest.raises(PipelineReplaced):
        is_written(second, BATCH, first.run, place=PLACE)


def test_a_new_checkpoint_begins_afresh_and_one_that_has_lost_the_index_does_not() -> None:
    written = begun(None, FIRST, place=PLACE).after(BATCH)
    other = replace(FIRST, query_id="other", batch_id=0)
    assert begun(written, other, place=PLACE).entry.next_batch_id == 0
    with pytest.raises(PipelineReplaced):
        begun(written, replace(other, has_claimed=True), place=PLACE)


@pytest.mark.parametrize("batches_lost", [1, 5])
def test_batches_that_are_lost_are_noticed_by_who_has_had_the_index(batches_lost: int) -> None:
    written = begun(None, FIRST, place=PLACE).after(BATCH)
    later = replace(FIRST, batch_id=8 + batches_lost, has_claimed=True)
    with pytest.raises(PipelineError, match=r"the search index i has lost rows .* is there is 7.* --swap"):
        begun(written, later, place=PLACE)
    begun(written, replace(later, batch_id=8), place=PLACE)


def test_an_index_that_is_gone_is_noticed() -> None:
    with pytest.raises(PipelineError, match=r"has lost rows .*: nothing is there"):
        begun(None, replace(FIRST, has_claimed=True), place=PLACE)
    with pytest.raises(PipelineError, match="nothing is there of what this run has written"):
        is_written(None, BATCH, 0, place=PLACE)


def test_a_checkpoint_that_was_put_back_does_not_take_over() -> None:
    written = begun(None, FIRST, place=PLACE).after(BATCH)
    with pytest.raises(PipelineError, match="put back"):
        begun(written, replace(FIRST, batch_id=3), place=PLACE)


def test_a_swap_has_a_number_that_no_run_has_and_goes_on_where_the_replay_was() -> None:
    live = replace(begun(None, FIRST, place=PLACE), run=5)
    staged = begun(None, FIRST, place=PLACE).after(BATCH)
    assert swapped(live, staged, "q") == replace(staged, run=6)
    assert swapped(None, replace(staged, run=9), "q").run == 10
    nothing = swapped(live, None, "q")
    assert (nothing.run, nothing.entry.query_id, nothing.entry.next_batch_id) == (6, "q", 0)
