"""Loading an aggregate: its events folded, from a snapshot where one can be used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headrace.events.codec import EventCodec
from headrace.events.decider import Decider
from headrace.events.journal import Journal
from headrace.events.records import READ_EVENTS_MAX, FoldedEvent
from headrace.events.sealing import Keyring
from headrace.events.snapshots import SnapshotPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The state of an aggregate at a version."""

    state: Any
    version: int


class Loader:
    """Folds streams. Safe to use from any thread."""

    def __init__(self, journal: Journal, codec: EventCodec, snapshots: SnapshotPolicy) -> None:
        self._journal = journal
        self._codec = codec
        self._policy = snapshots

    def load(
        self,
        decider: Decider,
        stream: str,
        *,
        until_version: int | None = None,
        until_position: int | None = None,
    ) -> Loaded:
        """The state that the events of a stream make, all of them or those up to a version or a position."""
        state, version = decider.initial, 0
        keyring = Keyring(self._journal)
        while until_version is None or version < until_version:
            wanted = (
                READ_EVENTS_MAX if until_version is None else min(READ_EVENTS_MAX, until_version - version)
            )
            page = self._journal.read_folded(
                stream, after_version=version, until_position=until_position, limit=wanted
            )
            state = self._folded(decider, state, page, keyring)
            version = page[-1].version if page else version
            if len(page) < wanted:
                break
        return Loaded(state=state, version=version)

    def _folded(self, decider: Decider, state: Any, page: list[FoldedEvent], keyring: Keyring) -> Any:
        evolve, decode = decider.evolve, self._codec.decode
        for _, type_, schema_version, data in page:
            for event in decode(type_, schema_version, data, keyring):
                state = evolve(state, event)
        return state
