"""A store that has lost what was written to it is told from one that is new."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.errors import PipelineError
from headrace.streams.sinks.ledger import Batch, entry_after
from headrace.streams.sinks.lost import refuse_lost

BATCH = Batch(pipeline="copies", query_id="q", batch_id=7, digest="d7", is_first=True, has_claimed=True)
ENTRY = replace(entry_after(BATCH, 1), next_batch_id=7)


def test_nothing_is_lost_where_the_last_batch_is_there_or_this_one() -> None:
    refuse_lost(ENTRY, BATCH, "the cache")
    refuse_lost(entry_after(BATCH, 1), BATCH, "the cache")


def test_a_store_that_was_never_had_may_be_empty_and_one_that_was_may_not() -> None:
    refuse_lost(None, replace(BATCH, has_claimed=False), "the cache")
    with pytest.raises(PipelineError, match=r"the cache has lost .* replay FILE:copies --swap"):
        refuse_lost(None, BATCH, "the cache")


def test_a_store_that_lacks_the_last_batch_is_refused() -> None:
    with pytest.raises(PipelineError, match="the last batch that is there is 5, and batch 6 was written"):
        refuse_lost(replace(ENTRY, next_batch_id=6), BATCH, "the cache")


def test_what_another_query_has_written_is_no_loss() -> None:
    refuse_lost(replace(ENTRY, query_id="another", next_batch_id=1), BATCH, "the cache")
