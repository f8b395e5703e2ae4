"""The state of each stream of events: a fold, kept by key and gone on with in each micro-batch.

Rows are events as they are stored: a stream, a version in it, the type, the version of the type's schema, and
the data as JSON. Versions of a stream count from 1 without gaps, so that nothing can go wrong unnoticed:

    the next version        is folded
    a version seen before   is a repeat and is left out; repeats are counted
    a later version         is refused: events are missing, and a state without them would be wrong

Within a micro-batch, the events of a stream are taken in the order of their versions.

Results are the streams that have changed: the key, `version`, and the columns that are made of the state.
The table that is kept has a row for each stream: key, `_version`, `_state`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa

from headrace.errors import PipelineError
from headrace.streams.buckets.logic import RESULTS, Arrivals, Step, Tables
from headrace.streams.keyed.calling import place
from headrace.streams.keyed.fields import column_of
from headrace.streams.windows.keys import key_codes
from headrace.streams.windows.runs import Flags, Indices

FOLDED: Final = "folded"
REPEATS: Final = "repeats"
VERSION: Final = "version"
TYPE: Final = "type"
SCHEMA_VERSION: Final = "schema_version"
DATA: Final = "data"
EVENT_COLUMNS: Final = (VERSION, TYPE, SCHEMA_VERSION, DATA)
"""What an event has beside its stream."""
_VERSION: Final = "_version"
_STATE: Final = "_state"
_UNDECODED: Final = object()

Decode = Callable[[bytes], Any]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """The logic."""

    by: str
    key: pa.DataType
    fold: Fold
    returns: pa.Schema
    row: Callable[[Any], Mapping[str, Any]] | None = None
    """Makes columns of a state; its own fields, where nothing is said."""

    def output_schemas(self, rows: pa.Schema) -> Mapping[str, pa.Schema]:  # noqa: ARG002 - a key has its type
        """The key, the version, and what is made of the state."""
        columns = [pa.field(self.by, self.key), pa.field(VERSION, pa.int64()), *self.returns]
        return {RESULTS: pa.schema(columns)}

    def step(self, state: Tables, arrivals: Arrivals) -> Step:
        """Fold one bucket's events."""
        kept = state.get(FOLDED)
        if kept is None:
            kept = self._kept([], [], [])
        rows = arrivals.rows
        if not len(rows):
            return Step(state={} if arrivals.is_end else {FOLDED: kept})
        folded = _Folding(self, kept, rows)
        results = {RESULTS: self._results(folded)}
        counts = {REPEATS: folded.repeat_count} if folded.repeat_count else {}
        if arrivals.is_end:
            return Step(state={}, outputs=results, counts=counts)
        write = self.fold.write_state
        fresh = self._kept(folded.keys, folded.versions, [write(each) for each in folded.states])
        rest = kept.filter(pa.array(~folded.is_touched))
        table = pa.concat_tables([rest, fresh]).combine_chunks()
        return Step(state={FOLDED: table}, outputs=results, counts=counts)

    def _kept(self, keys: Sequence[Any], versions: Sequence[int], states: Sequence[bytes]) -> pa.Table:
        return pa.table(
            {
                self.by: pa.array(keys, self.key),
                _VERSION: pa.array(versions, pa.int64()),
                _STATE: pa.array(states, pa.binary()),
            }
        )

    def _results(self, folded: _Folding) -> pa.Table:
        make = self.row or self.fold.columns
        made = [make(state) for state in folded.states]
        columns = {
            self.by: pa.array(folded.keys, self.key),
            VERSION: pa.array(folded.versions, pa.int64()),
        }
        for field in self.returns:
            values = [each.get(field.name) for each in made]
            columns[field.name] = column_of(values, field.type, f"{place(make)}: {field.name}")
        return pa.table(columns)


class _Folding:
    """Folds the rows of a bucket on what is kept of it. Keys, versions and states are those that changed."""

    def __init__(self, logic: Project, kept: pa.Table, rows: pa.Table) -> None:
        self.keys: list[Any] = []
        self.versions: list[int] = []
        self.states: list[Any] = []
        self.repeat_count = 0
        self._logic = logic
        kept_codes, codes = key_codes([kept, rows], [logic.by])
        self.is_touched = np.isin(kept_codes, codes)
        self._before = _by_code(kept, kept_codes, self.is_touched)
        self._decoders = _decoders(logic.fold, rows)
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
        names = rows[logic.by].take(pa.array(order[starts])).to_pylist()
        ends = [*starts[1:].tolist(), len(ordered)]
        groups = (names, ordered[starts].tolist(), starts.tolist(), ends, is_uneven.tolist())
        for name, code, start, end, uneven in zip(*groups, strict=True):
            self._fold_one(name, code, start, end, is_uneven=uneven)

    def _fold_one(self, name: Any, code: int, start: int, end: int, *, is_uneven: bool) -> None:
        version, state = 0, self._logic.fold.initial
        before = self._before.get(code)
        if before is not None:
            version, state = before[0], self._logic.fold.read_state(before[1])
        if is_uneven or self._versions[start] != version + 1:
            start, end = self._without_repeats(name, version, start, end)
        evolve = self._logic.fold.evolve
        try:
            for event in self._decoders.events(self._kinds[start:end], self._datas[start:end]):
                state = evolve(state, event)
        except Exception as error:
            told = " ".join(f"{type(error).__name__}: {error}".split())
            raise PipelineError(
                f"{place(evolve, error)}: {told} (stream {name!r}, after version {version})"
            ) from error
        self.keys.append(name)
        self.versions.append(version + end - start)
        self.states.append(state)

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
                raise PipelineError(
                    f"events of {name!r} are missing: version {found} follows on {reached}. Read the topic "
                    "from its beginning, under another name of the pipeline"
                )
        first = end - len(fresh)
        for values in (self._versions, self._kinds, self._datas):
            values[first:end] = [values[at] for at in fresh]
        return first, end


def _by_code(kept: pa.Table, codes: Indices, is_touched: Flags) -> dict[int, tuple[int, bytes]]:
    """Version and state of the streams that have new events."""
    touched = kept.filter(pa.array(is_touched))
    pairs = zip(touched[_VERSION].to_pylist(), touched[_STATE].to_pylist(), strict=True)
    return dict(zip(codes[is_touched].tolist(), pairs, strict=True))


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
