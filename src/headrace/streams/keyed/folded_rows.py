"""Folds rows of events by stream, on what was folded of them before.

Rows are events as they are stored: a stream, a version in it, the type, the version of the type's schema, and
the data as JSON. Versions of a stream count from 1 without gaps, so that nothing can go wrong unnoticed:

    the next version        is folded
    a version seen before   is a repeat and is left out; repeats are counted
    a later version         is not: events are missing, and a state without them would be wrong

Rows may come in any order; the events of a stream are taken in the order of their versions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa

from headrace.errors import PipelineError
from headrace.streams.keyed.calling import place
from headrace.streams.windows.keys import key_codes
from headrace.streams.windows.runs import Indices

VERSION: Final = "version"
TYPE: Final = "type"
SCHEMA_VERSION: Final = "schema_version"
DATA: Final = "data"
EVENT_COLUMNS: Final = (VERSION, TYPE, SCHEMA_VERSION, DATA)
"""What an event has beside its stream."""
_UNDECODED: Final = object()

Decode = Callable[[bytes], Any]
Before = Mapping[Any, tuple[int, Any]]
"""By stream, the version that it was folded to, and the state."""


class Fold(Protocol):
    """How events become a state: `headrace.events.Folding` is one. Travels to the workers."""

    @property
    def initial(self) -> Any:
        """What a stream begins with."""

    @property
    def evolve(self) -> Callable[[Any, Any], Any]:
        """What an event makes of a state."""

    def straight_decoder(self, type_: str, version: int) -> Decode | None:
        """What decodes most events of a type to one event each; `decode` takes the others."""

    def decode(self, type_: str, version: int, data: bytes) -> Sequence[Any]:
        """The events that a stored event is."""

    def write_state(self, state: Any) -> bytes:
        """A state as bytes."""

    def read_state(self, data: bytes) -> Any:
        """The state again."""

    def columns(self, state: Any) -> Mapping[str, Any]:
        """A state's fields."""


class FoldedRows:
    """What rows have made of the streams that they are of."""

    def __init__(self, fold: Fold, by: str, rows: pa.Table, before: Before) -> None:
        self.after: dict[Any, tuple[int, Any]] = {}
        """The streams that have rows: version and state."""
        self.repeat_count = 0
        self.gaps: dict[Any, tuple[int, int]] = {}
        """The streams of which events are missing: the version that was come to, and the one that follows."""
        self._fold = fold
        (codes,) = key_codes([rows], [by])
        self._decoders = _decoders(fold, rows)
        versions = np.asarray(_complete(rows, VERSION), dtype=np.int64)
        order = np.lexsort((versions, codes))
        ordered, versions = codes[order], versions[order]
        self._versions = versions.tolist()
        self._datas = _complete(rows, DATA).take(pa.array(order)).to_pylist()
        self._kinds = self._decoders.numbers[order].tolist()
        is_first = np.r_[True, ordered[1:] != ordered[:-1]]
        starts = np.flatnonzero(is_first)
        # Within a stream, each version has to follow on the one before.
        is_uneven = np.logical_or.reduceat(~is_first & np.r_[False, np.diff(versions) != 1], starts)
        names = rows[by].take(pa.array(order[starts])).to_pylist()
        ends = [*starts[1:].tolist(), len(ordered)]
        for name, start, end, uneven in zip(names, starts.tolist(), ends, is_uneven.tolist(), strict=True):
            self._fold_one(name, before.get(name), start, end, is_uneven=uneven)

    def _fold_one(
        self, name: Any, before: tuple[int, Any] | None, start: int, end: int, *, is_uneven: bool
    ) -> None:
        version, state = before or (0, self._fold.initial)
        if is_uneven or self._versions[start] != version + 1:
            start, end = self._without_repeats(name, version, start, end)
        evolve = self._fold.evolve
        try:
            for event in self._decoders.events(self._kinds[start:end], self._datas[start:end]):
                state = evolve(state, event)
        except Exception as error:
            told = " ".join(f"{type(error).__name__}: {error}".split())
            raise PipelineError(
                f"{place(evolve, error)}: {told} (stream {name!r}, after version {version})"
            ) from error
        self.after[name] = (version + end - start, state)

    def _without_repeats(self, name: Any, version: int, start: int, end: int) -> tuple[int, int]:
        """The place of the events that are new, once each. Moves them together, behind what is left out."""
        fresh: list[int] = []
        for at in range(start, end):
            found, reached = self._versions[at], version + len(fresh)
            if found <= reached:
                self.repeat_count += 1
            elif found == reached + 1:
                fresh.append(at)
            else:
                self.gaps[name] = (reached, found)
                break
        first = end - len(fresh)
        for values in (self._versions, self._kinds, self._datas):
            values[first:end] = [values[at] for at in fresh]
        return first, end


@dataclass(frozen=True, slots=True, kw_only=True)
class _Decoders:
    """How each kind of event in a bucket is decoded: by type and version of its schema."""

    fold: Fold
    kinds: tuple[tuple[str, int], ...]
    straight: tuple[Decode | None, ...]
    numbers: Indices
    """Of each row, the place of its kind."""

    def events(self, kinds: Sequence[int], datas: Sequence[bytes]) -> Iterator[Any]:
        """All events, in their order."""
        straight = self.straight
        for kind, data in zip(kinds, datas, strict=True):
            decode = straight[kind]
            try:
                event = decode(data) if decode is not None else _UNDECODED
            except Exception:  # noqa: BLE001 - the long way says what is wrong, if anything is
                event = _UNDECODED
            if event is not _UNDECODED:
                yield event
            else:
                yield from self.fold.decode(*self.kinds[kind], data)


def _decoders(fold: Fold, rows: pa.Table) -> _Decoders:
    kinds = pa.table({TYPE: _complete(rows, TYPE), SCHEMA_VERSION: _complete(rows, SCHEMA_VERSION)})
    (numbers,) = key_codes([kinds], [TYPE, SCHEMA_VERSION])
    found, first = np.unique(numbers, return_index=True)
    named = [(row[TYPE], row[SCHEMA_VERSION]) for row in kinds.take(pa.array(first)).to_pylist()]
    return _Decoders(
        fold=fold,
        kinds=tuple(named),
        straight=tuple(fold.straight_decoder(*each) for each in named),
        numbers=np.searchsorted(found, numbers),
    )


def _complete(rows: pa.Table, name: str) -> pa.ChunkedArray:
    column = rows[name]
    if column.null_count:
        at = int(np.flatnonzero(np.asarray(column.is_null()))[0])
        told = {each: rows[each][at].as_py() for each in rows.column_names if each != DATA}
        raise PipelineError(f"a row has no {name}, so it is no event: {told}; read a topic of events only")
    return column
