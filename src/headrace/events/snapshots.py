"""Snapshots: states that were folded earlier, so that a long stream is not folded from its beginning.

A snapshot saves time and proves nothing. It is used only if all of this holds, and else the stream is folded
from its first event and the snapshot is replaced:

- it was made by the same code: a fingerprint of `evolve`, of the functions, classes and constants that it
  reaches, of the classes of states and events, of upcasts, and of the decider's declared version;
- its checksum is right;
- the event that it ends with is in the stream (journals look when they read it).

What the fingerprint sees, and what it can't see, such as a table in a file, is said in reached_code.py. Who
changes what it can't see changes the number in `decider(..., version=2)`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec

from headrace.errors import ConfigError, EventsError
from headrace.events.codec import EventCodec
from headrace.events.decider import Decider
from headrace.events.event_type import event_type_of
from headrace.events.reached_code import ReachedCode
from headrace.events.records import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotPolicy:
    """When a state is kept: after so many events, or once folding has cost so much. Either may be None."""

    every_events: int | None = 1_000
    every_ms: float | None = None
    """How long reading and folding what is new may take before a snapshot is worth it."""

    def __post_init__(self) -> None:
        if self.every_events is not None and self.every_events < 1:
            raise ConfigError(f"a snapshot every {self.every_events} events can't be: choose 1 or more")
        if self.every_ms is not None and self.every_ms < 0:
            raise ConfigError(f"a snapshot after {self.every_ms} ms can't be: choose 0 or more")

    @property
    def is_on(self) -> bool:
        """Whether there are snapshots at all."""
        return self.every_events is not None or self.every_ms is not None

    def is_due(self, event_count: int, took_ms: float) -> bool:
        """Whether a state is worth keeping after so many events were folded, in so much time."""
        if event_count == 0:
            return False
        by_count = self.every_events is not None and event_count >= self.every_events
        return by_count or (self.every_ms is not None and took_ms >= self.every_ms)


class StateCodec:
    """Writes and reads the states of one decider. Safe to use from any thread."""

    def __init__(self, decider: Decider, codec: EventCodec) -> None:
        self.fingerprint = fingerprint(decider, codec)
        self._names = {each: each.__qualname__ for each in decider.states}
        self._decoders: dict[str, Callable[[Any], Any]] = {}
        # States that msgspec does not know can't be kept; they are folded each time.
        with suppress(TypeError):
            for each, name in self._names.items():
                self._decoders[name] = msgspec.msgpack.Decoder(each).decode

    def snapshot(self, stream: str, version: int, state: Any) -> Snapshot | None:
        """What to keep of a state; None if it would not be the same when it is read again."""
        name = self._names.get(type(state))
        if name is None or name not in self._decoders:
            return None
        try:
            written = msgspec.msgpack.encode((name, msgspec.Raw(msgspec.msgpack.encode(state))))
            if self._read(written) != state:
                return None
        except Exception:  # noqa: BLE001 - whatever a state is made of, that it can't be kept must fail no load
            return None
        return Snapshot(
            stream=stream,
            version=version,
            fingerprint=self.fingerprint,
            state=written,
            checksum=checksum(stream, version, self.fingerprint, written),
        )

    def state(self, snapshot: Snapshot) -> Any:
        """The state in a snapshot. Raises EventsError if it can't be trusted."""
        if snapshot.fingerprint != self.fingerprint:
            raise EventsError(f"the snapshot of {snapshot.stream} was made by other code")
        whole = checksum(snapshot.stream, snapshot.version, snapshot.fingerprint, snapshot.state)
        if snapshot.checksum != whole:
            raise EventsError(f"the snapshot of {snapshot.stream} is damaged")
        try:
            return self._read(snapshot.state)
        except (msgspec.MsgspecError, KeyError) as error:
            raise EventsError(f"the snapshot of {snapshot.stream} can't be read: {error}") from error

    def _read(self, written: bytes) -> Any:
        name, raw = msgspec.msgpack.decode(written, type=tuple[str, msgspec.Raw])
        return self._decoders[name](raw)


def checksum(stream: str, version: int, made_by: str, state: bytes) -> bytes:
    """What a snapshot is checked by."""
    told = hashlib.blake2b(digest_size=16)
    told.update(f"{stream}\0{version}\0{made_by}\0".encode())
    told.update(state)
    return told.digest()


def fingerprint(decider: Decider, codec: EventCodec) -> str:
    """What a state depends on, beside the events, as one text."""
    reached = ReachedCode()
    reached.add(decider.category, decider.version, sorted(codec.current.items()), decider.initial)
    reached.add(decider.evolve, *codec.upcasts.changes(), *decider.states, *decider.events)
    reached.add(*(event_type_of(each).forgotten for each in decider.events))
    return reached.hexdigest()
