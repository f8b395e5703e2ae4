"""Which source each row of a task came from, and how far each source came.

Where rows tell by their column `_kafka`, a source is a partition of a topic: `transactions-3`. Where they
don't, because a pipeline has dropped the column, it is the task itself: `task-00003`.

Who knows how far a topic is, but not the tasks of such rows, tells it of all of them: a source whose name
begins with EVERY raises all others of the micro-batch to where it is, and is not kept.

Pure: no Spark, no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.streams.buckets.logic import SourceProgress
from headrace.streams.time.lateness import LatenessRun, lateness_runs
from headrace.streams.topic import METADATA_COLUMN

PLACE_FIELDS: Final = ("topic", "partition", "offset", "timestamp")
"""The fields of `_kafka` that operators are given."""
FLAT_PLACES: Final = {field: f"{METADATA_COLUMN}_{field}" for field in PLACE_FIELDS}
"""What they are called as columns of their own."""

EVERY: Final = "*"
"""How names of sources begin that tell how far all others are; those of topics don't."""

Longs = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The sources of a task's rows."""

    names: tuple[str, ...]
    """In their order."""
    numbers: Longs
    """Of each row: the place of its source's name."""
    offsets: Longs | None
    """Of each row: its offset in its source; None where that is not known."""


def has_places(rows: pa.Schema) -> bool:
    """Whether rows of this schema tell where they came from."""
    if METADATA_COLUMN not in rows.names:
        return False
    kind = rows.field(METADATA_COLUMN).type
    return pa.types.is_struct(kind) and {kind[i].name for i in range(kind.num_fields)} >= set(PLACE_FIELDS)


def with_places(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows with the struct `_kafka`, too, if its fields are columns of their own."""
    if not set(FLAT_PLACES.values()).issubset(rows.schema.names):
        return rows
    fields = [rows.column(name) for name in FLAT_PLACES.values()]
    return rows.append_column(METADATA_COLUMN, pa.StructArray.from_arrays(fields, names=PLACE_FIELDS))


def sources_of(rows: pa.Table, task: int) -> Sources:
    """The sources of the rows of a task."""
    if not has_places(rows.schema):
        return Sources(names=(f"task-{task:05}",), numbers=np.zeros(len(rows), np.int64), offsets=None)
    topics = _place(rows, "topic").combine_chunks().dictionary_encode(null_encoding="encode")
    if isinstance(topics, pa.ChunkedArray):
        topics = topics.unify_dictionaries().combine_chunks()
    partitions = _longs(_place(rows, "partition"), absent=-1)
    codes = _numpy(topics.indices).astype(np.int64) * (2 + int(partitions.max(initial=0))) + partitions
    _, firsts, numbers = np.unique(codes, return_index=True, return_inverse=True)
    names = [f"{topics[int(row)].as_py() or ''}-{partitions[row]}" for row in firsts]
    order = sorted(range(len(names)), key=names.__getitem__)
    ranks = np.empty(len(names), np.int64)
    ranks[order] = np.arange(len(names))
    return Sources(
        names=tuple(names[place] for place in order),
        numbers=ranks[numbers],
        offsets=_longs(_place(rows, "offset"), absent=-1),
    )


def progress_of(
    rows: pa.Table, sources: Sources, *, event_time: str | None, declared: str | None
) -> tuple[SourceProgress, ...]:
    """How far each source came; of rows that are in the order of the log within each source."""
    times = None if event_time is None else micros(rows.column(event_time))
    records = micros(_place(rows, "timestamp")) if has_places(rows.schema) else None
    declarations = None if declared is None else micros(rows.column(declared))
    found = []
    for number, name in enumerate(sources.names):
        own = slice(None) if len(sources.names) == 1 else sources.numbers == number
        found.append(
            SourceProgress(
                source=name,
                row_count=len(sources.numbers[own]),
                event_time_us_max=_newest(times, own),
                record_time_us_max=_newest(records, own),
                declared_us=_newest(declarations, own),
                lateness=() if times is None else lateness_runs(times[0][own][times[1][own]]),
            )
        )
    return tuple(found)


def merged(progress: Iterable[SourceProgress]) -> tuple[SourceProgress, ...]:
    """The progress of all sources, by name: one may have been read by several tasks."""
    known: dict[str, SourceProgress] = {}
    for each in progress:
        known[each.source] = _together(known[each.source], each) if each.source in known else each
    found = [known[name] for name in sorted(known)]
    every = [each for each in found if each.source.startswith(EVERY)]
    own = [each for each in found if not each.source.startswith(EVERY)]
    return tuple(_raised(each, every) for each in own) if every and own else tuple(found)


def of_every(progress: SourceProgress) -> SourceProgress:
    """The same as the progress of all sources."""
    return replace(progress, source=f"{EVERY}{progress.source}", record_time_us_max=None)


def _raised(progress: SourceProgress, every: Sequence[SourceProgress]) -> SourceProgress:
    """The progress of a source that is at least as far as all of these."""
    return replace(
        progress,
        event_time_us_max=_later(
            progress.event_time_us_max, _earliest(each.event_time_us_max for each in every)
        ),
        declared_us=_later(progress.declared_us, _earliest(each.declared_us for each in every)),
    )


def to_json(progress: SourceProgress) -> dict[str, Any]:
    """As it travels with packed rows."""
    return asdict(progress)


def from_json(told: dict[str, Any]) -> SourceProgress:
    """What `to_json` gave."""
    runs = (LatenessRun(newest_us, tuple(counts)) for newest_us, counts in told["lateness"])
    return SourceProgress(**{**told, "lateness": tuple(runs)})


Micros = tuple[Longs, npt.NDArray[np.bool_]]
"""Times in microseconds since 1970, and which of them there are."""


def micros(times: pa.ChunkedArray) -> Micros:
    """A column of timestamps as numbers."""
    numbers = times.cast(pa.timestamp("us", times.type.tz)).cast(pa.int64())
    return _longs(numbers, absent=0), _numpy(pc.is_valid(times))


def _place(rows: pa.Table, field: str) -> pa.ChunkedArray:
    return pc.struct_field(rows.column(METADATA_COLUMN), field)


def _longs(column: pa.ChunkedArray, *, absent: int) -> Longs:
    filled: Longs = _numpy(pc.fill_null(column.cast(pa.int64()), absent))
    return filled


def _numpy(column: Any) -> Any:
    if isinstance(column, pa.ChunkedArray):
        return column.to_numpy()
    return column.to_numpy(zero_copy_only=False)


def _newest(times: Micros | None, own: Any) -> int | None:
    if times is None:
        return None
    present = times[0][own][times[1][own]]
    return int(present.max()) if len(present) else None


def _together(one: SourceProgress, other: SourceProgress) -> SourceProgress:
    return replace(
        one,
        row_count=one.row_count + other.row_count,
        event_time_us_max=_later(one.event_time_us_max, other.event_time_us_max),
        record_time_us_max=_later(one.record_time_us_max, other.record_time_us_max),
        declared_us=_later(one.declared_us, other.declared_us),
        # What one task has read is not judged by what another has.
        lateness=(*one.lateness, *other.lateness),
    )


def _later(*times: int | None) -> int | None:
    return max((time for time in times if time is not None), default=None)


def _earliest(times: Iterable[int | None]) -> int | None:
    return min((time for time in times if time is not None), default=None)


def in_order(sources: Sources) -> npt.NDArray[np.intp] | None:
    """The order of rows by source and offset; None where they are in it."""
    steps = np.diff(sources.numbers)
    is_ordered = (steps >= 0).all()
    if is_ordered and sources.offsets is not None:
        is_ordered = (np.diff(sources.offsets)[steps == 0] >= 0).all()
    if is_ordered:
        return None
    if sources.offsets is None:
        return np.argsort(sources.numbers, kind="stable")
    return np.lexsort((sources.offsets, sources.numbers))
