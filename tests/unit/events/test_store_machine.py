"""Random commands of many writers on the journal in memory."""

from __future__ import annotations

from hypothesis import settings

from event_store_machine import EventStoreMachine
from headrace.events import MemoryJournal


class MemoryMachine(EventStoreMachine):
    make_journal = MemoryJournal


TestMemory = MemoryMachine.TestCase
TestMemory.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
