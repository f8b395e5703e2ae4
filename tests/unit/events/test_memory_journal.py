"""The journal in memory keeps the promises of every journal."""

from __future__ import annotations

import pytest

from headrace.events import MemoryJournal
from headrace.testing.clock import ManualClock
from headrace.testing.journals import JournalContract, new, write


class TestMemoryJournal(JournalContract):
    @pytest.fixture
    def journal(self) -> MemoryJournal:
        return MemoryJournal()


def test_times_do_not_go_back_with_the_clock() -> None:
    clock = ManualClock()
    journal = MemoryJournal(clock)
    write(journal, "a-1", new())
    clock.jump(-60_000)
    write(journal, "a-1", new())

    first, second = journal.read_all()
    assert first.recorded_at == second.recorded_at
