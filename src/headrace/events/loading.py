"""Loading an aggregate: its events folded, from a snapshot where one can be used."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from headrace.errors import EventsError
from headrace.events.codec import EventCodec
from headrace.events.decider import Decider
from headrace.events.journal import Journal
from headrace.events.records import READ_EVENTS_MAX, FoldedEvent
from headrace.events.sealing import Keyring
from headrace.events.snapshots import SnapshotPolicy, StateCodec


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The state of an aggregate at a version."""

    state: Any
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Until:
    """How far to fold: to a version of the stream, to a position of the log, or to the end."""

    version: int | None = None
    position: int | None = None

    def wanted(self, version: int) -> int:
        """How many events to read next, after a version."""
        return READ_EVENTS_MAX if self.version is None else min(READ_EVENTS_MAX, self.version - version)

    def includes(self, version: int, position: int) -> bool:
        """Whether an event is among those that are folded."""
        return (self.version is None or version <= self.version) and (
            self.position is None or position <= self.position
        )


_TO_THE_END = Until()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Start:
    """Where folding begins."""

    state: Any
    version: int = 0
    forgotten_count: int = 0


class Loader:
    """Folds streams. Safe to use from any thread."""

    def __init__(
        self, journal: Journal, codec: EventCodec, policy: SnapshotPolicy, deciders: Iterable[Decider]
    ) -> None:
        self._journal = journal
        self._codec = codec
        self._policy = policy
        self._states = {each.category: StateCodec(each, codec) for each in deciders if policy.is_on}

    def load(self, decider: Decider, stream: str, until: Until = _TO_THE_END) -> Loaded:
        """The state that the events of a stream make, and a snapshot of it if one is due."""
        start = self._start(decider, stream, until)
        began_s = time.perf_counter()
        loaded = self._fold_from(decider, stream, start, until)
        took_ms = (time.perf_counter() - began_s) * 1000
        if until is _TO_THE_END and self._policy.is_due(loaded.version - start.version, took_ms):
            self._keep(decider, stream, loaded, start.forgotten_count)
        return loaded

    def _start(self, decider: Decider, stream: str, until: Until) -> _Start:
        states = self._states.get(decider.category)
        if states is None:
            return _Start(state=decider.initial)
        snapshot, count = self._journal.snapshot(stream)
        if snapshot is None or not until.includes(snapshot.version, snapshot.position):
            return _Start(state=decider.initial, forgotten_count=count)
        try:
            return _Start(state=states.state(snapshot), version=snapshot.version, forgotten_count=count)
        except EventsError:
            # Events are the truth: folded from the first one, they give a new snapshot soon.
            return _Start(state=decider.initial, forgotten_count=count)

    def _keep(self, decider: Decider, stream: str, loaded: Loaded, forgotten_count: int) -> None:
        snapshot = self._states[decider.category].snapshot(stream, loaded.version, loaded.state)
        if snapshot is not None:
            self._journal.save_snapshot(snapshot, forgotten_count=forgotten_count)

    def _fold_from(self, decider: Decider, stream: str, start: _Start, until: Until) -> Loaded:
        state, version = start.state, start.version
        keyring = Keyring(self._journal)
        while (wanted := until.wanted(version)) > 0:
            page = self._journal.read_folded(
                stream, after_version=version, until_position=until.position, limit=wanted
            )
            state = self._folded(decider, state, page, keyring)
            version = page[-1].version if page else version
            if len(page) < wanted:
                break
        return Loaded(state=state, version=version)

    def _folded(self, decider: Decider, state: Any, page: list[FoldedEvent], keyring: Keyring) -> Any:
        evolve, straight = decider.evolve, self._codec.straight
        for _, type_, schema_version, data in page:
            decode = straight.get((type_, schema_version))
            if decode is not None:
                try:
                    event = decode(data)
                except msgspec.ValidationError:
                    decode = None
                else:
                    state = evolve(state, event)
            if decode is None:
                for event in self._codec.decode(type_, schema_version, data, keyring):
                    state = evolve(state, event)
        return state
