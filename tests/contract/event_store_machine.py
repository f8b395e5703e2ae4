"""Random commands of many writers, against a model that is a list of events.

Writers load, decide and append in separate steps, so that they meet in every way. The store must tell what
the model tells: all events in one order, each stream's versions, the state at every version with and without
snapshots, and the first result of every command.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headrace.errors import CommandIdReused, ConditionConflict, Refused, VersionConflict
from headrace.events import Condition, EventStore, Executed, Journal, SnapshotPolicy, Write, fold
from headrace.testing.accounts import Account, Command, Deposit, Deposited, Event, State, Withdraw, Withdrawn

STREAMS = st.sampled_from(["account-1", "account-2", "account-3"])
WRITERS = st.sampled_from("abc")
COMMANDS = st.one_of(
    st.builds(Deposit, amount=st.integers(0, 5)), st.builds(Withdraw, amount=st.integers(1, 5))
)


@dataclass(kw_only=True)
class Pending:
    """What a writer has decided and not yet appended."""

    stream: str
    version: int
    events: list[Event]


@dataclass(kw_only=True)
class Model:
    """What must be there."""

    log: list[tuple[str, Event]] = field(default_factory=list)
    commands: dict[str, tuple[str, Command, Executed]] = field(default_factory=dict)

    def of(self, stream: str) -> list[Event]:
        """The events of a stream."""
        return [event for name, event in self.log if name == stream]

    def add(self, stream: str, events: list[Event]) -> None:
        """What was appended."""
        self.log.extend((stream, event) for event in events)


class EventStoreMachine(RuleBasedStateMachine):
    """Runs on any journal: `make_journal` gives an empty one."""

    make_journal: Callable[[], Journal]

    def __init__(self) -> None:
        super().__init__()
        self.journal = type(self).make_journal()
        self.store = EventStore(self.journal, [Account], snapshots=SnapshotPolicy(every_events=3))
        self.plain = EventStore(self.journal, [Account], snapshots=SnapshotPolicy(every_events=None))
        self.model = Model()
        self.pending: dict[str, Pending] = {}
        self.seen: list[tuple[str, Any]] = []

    @rule(writer=WRITERS, stream=STREAMS, command=COMMANDS)
    def decide(self, writer: str, stream: str, command: Command) -> None:
        loaded = self.store.load(stream)
        try:
            events = list(Account.decide(loaded.state, command))
        except Refused:
            return
        self.pending[writer] = Pending(stream=stream, version=loaded.version, events=events)

    @precondition(lambda self: self.pending)
    @rule(data=st.data())
    def append(self, data: st.DataObject) -> None:
        pending = self.pending.pop(data.draw(st.sampled_from(sorted(self.pending))))
        history = self.model.of(pending.stream)
        if pending.version == len(history):
            self.store.append(pending.stream, pending.events, expected=pending.version)
            self.model.add(pending.stream, pending.events)
            return
        with pytest.raises(VersionConflict) as conflict:
            self.store.append(pending.stream, pending.events, expected=pending.version)
        assert conflict.value.actual == len(history)
        assert [event.data for event in conflict.value.newer] == history[pending.version :]

    @rule(stream=STREAMS, command=COMMANDS, command_id=st.sampled_from("uvwxyz"))
    def execute(self, stream: str, command: Command, command_id: str) -> None:
        known = self.model.commands.get(command_id)
        if known is not None and known[:2] != (stream, command):
            # One that would be refused anyway is refused for that reason, or for its id.
            with pytest.raises((CommandIdReused, Refused)):
                self.store.execute(stream, command, command_id=command_id)
            return
        try:
            expected = list(Account.decide(fold(Account, self.model.of(stream)), command))
        except Refused:
            if known is None:
                with pytest.raises(Refused):
                    self.store.execute(stream, command, command_id=command_id)
                return
            expected = []
        executed = self.store.execute(stream, command, command_id=command_id)
        if known is not None:
            assert executed.is_repeat
            assert (executed.events, executed.version) == (known[2].events, known[2].version)
            return
        assert list(executed.events) == expected
        self.model.add(stream, expected)
        self.model.commands[command_id] = (stream, command, executed)

    @rule(giver=STREAMS, taker=STREAMS, amount=st.integers(1, 5))
    def move(self, giver: str, taker: str, amount: int) -> None:
        if giver == taker:
            return
        versions = {name: len(self.model.of(name)) for name in (giver, taker)}
        writes = [
            Write(giver, [Withdrawn(amount=amount)], versions[giver]),
            Write(taker, [Deposited(amount=amount)], versions[taker]),
        ]
        stale = [writes[0], writes[1]._replace(expected=versions[taker] + 1)]
        with pytest.raises(VersionConflict):
            self.store.append_many(stale)
        self.store.append_many(writes)
        self.model.add(giver, [Withdrawn(amount=amount)])
        self.model.add(taker, [Deposited(amount=amount)])

    @rule(stream=STREAMS, after=st.integers(0, 30))
    def append_unless_withdrawn(self, stream: str, after: int) -> None:
        condition = Condition(after=after, types=frozenset({"Withdrawn"}))
        is_ruled_out = any(isinstance(event, Withdrawn) for _, event in self.model.log[after:])
        if is_ruled_out:
            with pytest.raises(ConditionConflict):
                self.store.append(stream, [Deposited(amount=1)], condition=condition)
            return
        self.store.append(stream, [Deposited(amount=1)], condition=condition)
        self.model.add(stream, [Deposited(amount=1)])

    @rule(limit=st.integers(1, 10))
    def subscribe(self, limit: int) -> None:
        """A subscriber reads on from where it was, and never has to look back."""
        page = self.store.read_all(len(self.seen), limit=limit)
        self.seen.extend((event.stream, event.data) for event in page)

    @rule()
    def drop_snapshots(self) -> None:
        self.journal.drop_snapshots()

    @invariant()
    def order_is_that_of_commits(self) -> None:
        assert self.seen == self.model.log[: len(self.seen)]
        assert self.journal.head() == len(self.model.log)

    @rule(stream=STREAMS, data=st.data())
    def state_at_a_version(self, stream: str, data: st.DataObject) -> None:
        history = self.model.of(stream)
        version = data.draw(st.integers(0, len(history)))
        state = fold(Account, history[:version])
        assert self.store.as_of(stream, version=version).state == state
        assert self.plain.as_of(stream, version=version).state == state

    def teardown(self) -> None:
        try:
            log = [(event.stream, event.data) for event in self.store.read_all()]
            assert log == self.model.log
            for stream in sorted({name for name, _ in log}):
                history = self.model.of(stream)
                state: State = fold(Account, history)
                assert self.store.load(stream) == self.plain.load(stream)
                assert (self.plain.load(stream).state, self.plain.load(stream).version) == (
                    state,
                    len(history),
                )
                assert [event.version for event in self.store.read_stream(stream)] == [
                    *range(1, len(history) + 1)
                ]
        finally:
            self.journal.close()
