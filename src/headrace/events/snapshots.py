"""Snapshots: states that were folded earlier, so that a long stream is not folded from its beginning.

A snapshot saves time and proves nothing. It is used only if all of this holds, and else the stream is folded
from its first event and the snapshot is replaced:

- it was made by the same code: a fingerprint of `evolve`, of the functions that it calls, of the classes of
  states and events, of upcasts, and of the decider's declared version;
- its checksum is right;
- the event that it ends with is in the stream (journals look when they read it).

The fingerprint sees functions that `evolve` names, in its own module or another, down to a bound. It does not
see what is reached in other ways, such as a method of a foreign object, or a table in a file: who changes
that changes the number in `decider(..., version=2)`.
"""

from __future__ import annotations

import hashlib
import inspect
import types
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from headrace.errors import ConfigError, EventsError
from headrace.events.codec import EventCodec
from headrace.events.decider import Decider
from headrace.events.records import Snapshot

FUNCTIONS_MAX: Final = 500
"""How many functions a fingerprint is made of at most."""
_PLAIN: Final = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis))


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
        except (TypeError, ValueError, msgspec.MsgspecError):
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
    told = hashlib.blake2b(digest_size=16)
    told.update(repr((decider.category, decider.version, sorted(codec.current.items()))).encode())
    with suppress(TypeError):
        told.update(msgspec.msgpack.encode(decider.initial, order="deterministic"))
    functions: list[Any] = [decider.evolve, *codec.upcasts.changes()]
    for each in (*decider.states, *decider.events):
        told.update(repr((each.__qualname__, getattr(each, "__annotations__", {}))).encode())
        functions.extend(_own_functions(each))
    for function in _reached(functions):
        told.update(repr(_told(function.__code__)).encode())
        told.update(repr(_constants(function)).encode())
    return told.hexdigest()


def _own_functions(body: type) -> Iterator[types.FunctionType]:
    """The functions that a class's author has written, without those that dataclasses make."""
    for _, value in sorted(vars(body).items()):
        function = value.__func__ if isinstance(value, staticmethod | classmethod) else value
        function = function.fget if isinstance(function, property) else function
        if inspect.isfunction(function) and function.__code__.co_filename != "<string>":
            yield function


def _reached(functions: list[Any]) -> Iterator[types.FunctionType]:
    """Functions, and those that they name, each once, in an order that is always the same."""
    left = [each for each in functions if inspect.isfunction(each)]
    seen: set[int] = set()
    while left and len(seen) < FUNCTIONS_MAX:
        function = left.pop(0)
        if id(function.__code__) in seen:
            continue
        seen.add(id(function.__code__))
        yield function
        named = [value for _, value in _named(function)]
        left.extend(value for value in named if inspect.isfunction(value))


def _named(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """What a function reaches by the names in its code, and by its closure."""
    for name in sorted(_names(function.__code__)):
        if name in function.__globals__:
            yield name, function.__globals__[name]
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        yield name, cell.cell_contents


def _names(code: types.CodeType) -> set[str]:
    inner = (each for each in code.co_consts if isinstance(each, types.CodeType))
    return set(code.co_names).union(*(_names(each) for each in inner))


def _constants(function: types.FunctionType) -> list[tuple[str, Any]]:
    return [(name, _told(value)) for name, value in _named(function) if isinstance(value, (*_PLAIN, tuple))]


def _told(value: Any) -> Any:
    """A value of code in a form that is the same in every process."""
    if isinstance(value, types.CodeType):
        return (value.co_code, value.co_names, value.co_varnames, [_told(each) for each in value.co_consts])
    if isinstance(value, frozenset):
        return sorted(repr(_told(each)) for each in value)
    if isinstance(value, tuple):
        return tuple(_told(each) for each in value)
    return value if isinstance(value, _PLAIN) else type(value).__qualname__
