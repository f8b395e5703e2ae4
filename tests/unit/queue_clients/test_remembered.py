"""What a bridge remembers of what it has handed over, against a naive reference."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import BridgeFailed
from headrace.queue_clients.bridge.remembered import HandedOver, Remembered

IDS = st.lists(st.sampled_from([f"m{number}" for number in range(12)]), max_size=4)


@given(batches=st.lists(IDS, max_size=30), slot_count=st.integers(1, 8), restarts=st.sets(st.integers(0, 30)))
@settings(max_examples=200, deadline=None)
def test_the_ids_of_the_last_batches_are_known_and_no_others(
    batches: list[list[str]], slot_count: int, restarts: set[int]
) -> None:
    journal: dict[bytes, bytes] = {}  # as compaction leaves it: the last value of each key
    remembered = Remembered(slot_count)
    for number, ids in enumerate(batches):
        batch = remembered.next_batch(ids)
        journal[remembered.key_of(batch)] = batch.value()
        remembered.add(batch)
        if number in restarts:
            stored = [HandedOver.read(value, "journal") for value in journal.values()]
            remembered = Remembered.of(stored[::-1], slot_count)
        expected = {each for ids in batches[max(0, number + 1 - slot_count) : number + 1] for each in ids}
        assert {f"m{each}" for each in range(12) if f"m{each}" in remembered} == expected
    assert len(journal) <= slot_count


def test_a_batch_that_was_not_committed_is_not_known() -> None:
    remembered = Remembered(3)
    remembered.next_batch(["m1"])
    assert "m1" not in remembered


def test_a_journal_with_something_else_in_it_is_refused() -> None:
    for value in (b"", b"[]", b"{}", b'{"batch": "x", "ids": []}', b"\xff"):
        with pytest.raises(BridgeFailed, match="no journal"):
            HandedOver.read(value, "t")
