"""What the ledger of a cache says, step by step."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import PipelineError, PipelineReplaced
from headrace.streams.sinks.cache.state import (
    Seen,
    State,
    begin_run,
    close_batch,
    ledger_key,
    made,
    open_batch,
    read_state,
    swapped,
)
from headrace.streams.sinks.ledger import Batch, Entry, entry_after

BATCH = Batch(pipeline="copies", query_id="q", batch_id=0, digest="d0", is_first=True)
NEXT = replace(BATCH, batch_id=1, digest="d1", is_first=False)
SEEN = Seen(place="the cache", server="s1", row_count=10)
LOST = "the cache has lost rows of pipeline copies"


def written(batch: Batch, state: State | None = None, seen: Seen = SEEN) -> State:
    """What the ledger says after a run that has written the batch."""
    begun = begin_run(state, batch, seen)
    opened = open_batch(begun, batch, begun.run, seen)
    assert opened is not None
    closed = close_batch(opened, batch, begun.run, seen)
    assert closed is not None
    return closed


def test_a_batch_is_opened_and_closed_and_the_next_one_follows() -> None:
    begun = begin_run(None, BATCH, SEEN)
    assert (begun.run, begun.open_batch) == (1, None)
    opened = open_batch(begun, BATCH, 1, SEEN)
    assert opened is not None
    assert (opened.open_batch, opened.server) == (0, "s1")
    closed = close_batch(opened, BATCH, 1, SEEN)
    assert closed == replace(opened, entry=entry_after(BATCH, 1), row_count=10, open_batch=None)
    assert open_batch(closed, BATCH, 1, SEEN) is None, "it is written already"
    following = open_batch(closed, NEXT, 1, SEEN)
    assert following is not None
    assert following.open_batch == 1


def test_a_batch_that_was_cut_off_is_opened_again_by_the_next_run() -> None:
    opened = open_batch(begin_run(None, BATCH, SEEN), BATCH, 1, SEEN)
    again = begin_run(opened, BATCH, SEEN)
    assert (again.run, again.open_batch) == (2, None)
    assert open_batch(again, BATCH, 2, SEEN) is not None


def test_a_run_that_was_replaced_can_neither_open_nor_close() -> None:
    state = begin_run(open_batch(begin_run(None, BATCH, SEEN), BATCH, 1, SEEN), BATCH, SEEN)
    for step in (open_batch, close_batch):
        with pytest.raises(PipelineReplaced, match="another run of pipeline copies has taken over"):
            step(state, BATCH, 1, SEEN)


def test_a_newer_checkpoint_takes_over_and_the_older_one_does_not_come_back() -> None:
    state = written(BATCH)
    newer = replace(BATCH, query_id="q2")
    taken = begin_run(state, newer, SEEN)
    assert (taken.entry.query_id, taken.entry.next_batch_id, taken.run) == ("q2", 0, 2)
    with pytest.raises(PipelineReplaced):
        begin_run(taken, replace(NEXT, is_first=True, has_claimed=True), SEEN)


def test_who_can_not_go_on_does_not_take_over() -> None:
    state = written(NEXT, written(BATCH))
    with pytest.raises(PipelineError, match="checkpoint was put back"):
        begin_run(state, BATCH, SEEN)


def test_a_batch_counts_only_if_the_same_process_of_redis_has_seen_all_of_it() -> None:
    opened = open_batch(begin_run(None, BATCH, SEEN), BATCH, 1, SEEN)
    assert close_batch(opened, BATCH, 1, replace(SEEN, server="s2")) is None
    assert close_batch(begin_run(None, BATCH, SEEN), BATCH, 1, SEEN) is None, "it was never opened"


def test_a_batch_that_was_closed_may_be_closed_again() -> None:
    state = written(BATCH)
    assert close_batch(state, BATCH, 1, replace(SEEN, server="s2")) == state


def test_a_cache_that_has_lost_its_ledger_or_a_part_of_it_is_refused() -> None:
    state = written(NEXT, written(BATCH))
    third = replace(NEXT, batch_id=2)
    for step in (open_batch, close_batch):
        with pytest.raises(PipelineError, match=LOST):
            step(None, third, 2, SEEN)
        with pytest.raises(PipelineError, match=LOST):
            step(replace(state, run=1), third, 2, SEEN)
    with pytest.raises(PipelineError, match=LOST):
        begin_run(None, replace(third, has_claimed=True), SEEN)
    with pytest.raises(PipelineError, match="the last batch that is there is 0"):
        open_batch(replace(state, entry=entry_after(BATCH, 1)), third, 2, SEEN)


def test_rows_that_were_evicted_are_missed_and_those_that_a_batch_has_removed_are_not() -> None:
    state, empty = written(BATCH), replace(SEEN, row_count=0)
    with pytest.raises(PipelineError, match="it had 10 rows and has none"):
        begin_run(state, NEXT, empty)
    with pytest.raises(PipelineError, match="it had 10 rows and has none"):
        open_batch(state, NEXT, 1, empty)
    opened = open_batch(state, NEXT, 1, SEEN)
    with pytest.raises(PipelineError, match="it had 10 rows and has none"):
        close_batch(opened, NEXT, 1, empty)
    # The next batch removes all rows, and is cut off before it is closed; or another pipeline does.
    emptied = replace(empty, is_emptied=True)
    again = begin_run(opened, NEXT, emptied)
    assert open_batch(again, NEXT, 2, emptied) is not None
    assert open_batch(opened, NEXT, 1, emptied) is not None
    assert close_batch(opened, NEXT, 1, emptied) is not None


def test_a_swap_shuts_out_whoever_writes_and_hands_over_what_was_replayed() -> None:
    live = replace(written(BATCH), run=7)
    staged = written(replace(BATCH, query_id="q2"), made())
    after = swapped(live, staged, "q2", "swap-1", 3)
    assert (after.run, after.entry, after.row_count, after.swap) == (8, staged.entry, 3, "swap-1")
    assert swapped(None, staged, "q2", "swap-1", 3).run > staged.run
    # Nothing was replayed: the next batch is the first.
    assert swapped(live, made(), "q2", "swap-1", 0).entry.next_batch_id == 0
    goes_on = begin_run(after, replace(BATCH, query_id="q2", batch_id=1, digest="d1"), SEEN)
    assert (goes_on.run, goes_on.swap) == (9, "swap-1")


STATES = st.builds(
    State,
    run=st.integers(0, 2**60),
    entry=st.builds(
        Entry,
        next_batch_id=st.integers(0, 2**60),
        query_id=st.text(),
        task_count=st.just(1),
        digest=st.text(),
    ),
    row_count=st.integers(0, 2**60),
    open_batch=st.none() | st.integers(0, 2**60),
    server=st.text(),
    swap=st.text(),
)


@given(STATES)
def test_a_ledger_reads_back_what_was_written(state: State) -> None:
    kept = {name.encode(): value.encode() for name, value in state.fields().items()}
    assert read_state("key", kept) == state


def test_a_key_that_holds_something_else_is_refused_with_its_name() -> None:
    assert read_state("key", {}) is None
    for wrong in ({b"run": b"1"}, {name.encode(): b"x" for name in made().fields()}):
        with pytest.raises(PipelineError, match=r"the key \{c\}\.headrace\.p is where a pipeline keeps"):
            read_state(ledger_key("c", "p"), wrong)
