"""Rows on their way to their buckets: what a task packs, and what a bucket is given of it.

A task packs all its rows of a micro-batch into blobs for each bucket, those without rows included, so that
each bucket is told how far every source came. A blob is a stream of Arrow's IPC format: rows of the bucket,
ordered by source and then by offset, and in the schema's metadata, under METADATA_KEY, as JSON:

    {"task": 3,                                  which of the micro-batch's
     "piece": 0,                                 which of the blobs of this task for this bucket
     "runs": [["transactions-0", 120], ...],     which sources the rows are of, in the order of the rows
     "progress": [{"source": "transactions-0", "row_count": 500, ...}, ...]}     of the whole task; in piece 0

A bucket's blobs, in whatever order they come, give the same arrivals: rows by source, then by offset.

Pure: no Spark, no I/O.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.streams.buckets.logic import Arrivals, SourceProgress
from headrace.streams.buckets.sources import (
    Sources,
    from_json,
    has_places,
    in_order,
    merged,
    of_every,
    progress_of,
    sources_of,
    to_json,
)
from headrace.streams.buckets.tables import read_table, write_table
from headrace.streams.topic import METADATA_COLUMN

METADATA_KEY: Final = b"headrace.packed"
BUCKETS_MAX: Final = 2**15
PIECE_BYTES: Final = 2**18
"""Blobs are about as large as this at most. Java puts byte arrays of half a megabyte or more in a place of
their own in its heap, which it takes far longer to clear."""

_SEED: Final = 42
_MASK: Final = 0xFFFFFFFF


def pack(
    rows: pa.Table,
    buckets: npt.NDArray[np.int32],
    *,
    bucket_count: int,
    task: int,
    event_time: str | None = None,
    declared: str | None = None,
) -> Iterator[tuple[int, bytes]]:
    """The blobs of each bucket, at least one. `buckets` says of each row which one is its own.

    There is at least one row. One that declares how far its source is, and has no event time, is no event:
    it goes to no bucket.
    """
    rows = rows.combine_chunks()
    sources = sources_of(rows, task)
    order = in_order(sources)
    if order is not None:
        rows, buckets = rows.take(order), buckets[order]
        offsets = None if sources.offsets is None else sources.offsets[order]
        sources = Sources(names=sources.names, numbers=sources.numbers[order], offsets=offsets)
    progress = progress_of(rows, sources, event_time=event_time, declared=declared)
    is_event = events_of(rows, event_time, declared)
    by_bucket = is_event[np.argsort(buckets[is_event].astype(np.uint16), kind="stable")]
    rows, buckets, numbers = rows.take(by_bucket), buckets[by_bucket], sources.numbers[by_bucket]
    ends = np.cumsum(np.bincount(buckets, minlength=bucket_count))
    told = [to_json(each) for each in progress]
    for bucket, end in enumerate(ends.tolist()):
        first = int(ends[bucket - 1]) if bucket else 0
        for piece, (start, length) in enumerate(pieces_of(rows, first, end - first)):
            counts = np.bincount(numbers[start : start + length], minlength=len(sources.names)).tolist()
            runs = [[name, count] for name, count in zip(sources.names, counts, strict=True) if count]
            about = {"task": task, "piece": piece, "runs": runs, "progress": told if piece == 0 else []}
            yield bucket, write_table(rows.slice(start, length), {METADATA_KEY: json.dumps(about)})


def pieces_of(rows: pa.Table, start: int, length: int) -> Iterator[tuple[int, int]]:
    """A stretch of rows as stretches of about PIECE_BYTES, by start and length; at least one."""
    row_bytes = max(1, rows.nbytes // max(1, len(rows)))
    longest = max(1, PIECE_BYTES // row_bytes)
    for at in range(start, start + max(1, length), longest):
        yield at, min(longest, start + length - at)


def pack_progress(
    rows: pa.Table, schema: pa.Schema, *, bucket_count: int, task: int, event_time: str, declares: bool
) -> Iterator[tuple[int, bytes]]:
    """A blob without rows, of this schema, for each bucket: it only tells how far the rows' sources are.

    Whether a source has declared that time, or has had an event of it, `declares` says. Where the operator's
    own rows don't tell their sources, it is told of all of them.
    """
    rows = rows.combine_chunks()
    declared = event_time if declares else None
    found = progress_of(rows, sources_of(rows, task), event_time=event_time, declared=declared)
    bare = [replace(each, lateness=()) for each in found]
    # Rows without a place are of other sources, which nobody knows; what is kept of this one would hold back.
    told = [to_json(each if has_places(schema) else of_every(each)) for each in bare]
    metadata = {METADATA_KEY: json.dumps({"task": task, "piece": 0, "runs": [], "progress": told})}
    blob = write_table(schema.empty_table(), metadata)
    return ((bucket, blob) for bucket in range(bucket_count))


def events_of(rows: pa.Table, event_time: str | None, declared: str | None) -> npt.NDArray[np.intp]:
    """Where the rows are that are more than the word of a source how far it is."""
    if event_time is None or declared is None:
        return np.arange(len(rows))
    is_word = pc.and_(pc.is_null(rows.column(event_time)), pc.is_valid(rows.column(declared)))
    return np.flatnonzero(~is_word.to_numpy())


def arrivals(blobs: Iterable[bytes], *, is_end: bool = False) -> Arrivals:
    """What a bucket is given of the blobs of all tasks of a micro-batch; there is at least one."""
    progress: list[SourceProgress] = []
    runs: dict[str, list[pa.Table]] = {}
    tables = [read_table(blob) for blob in blobs]
    packed = [(json.loads(rows.schema.metadata[METADATA_KEY]), rows) for rows in tables]
    # Rows of one record, which a join has made several of, lie in one order only by their tasks.
    for told, rows_told in sorted(packed, key=_task_and_piece):
        progress += map(from_json, told["progress"])
        start = 0
        rows = rows_told.replace_schema_metadata(None)
        for source, count in told["runs"]:
            runs.setdefault(source, []).append(rows.slice(start, count))
            start += count
    # One without rows keeps the columns where there are no others.
    ordered = [rows.slice(0, 0), *(_one_source(runs[source]) for source in sorted(runs))]
    return Arrivals(rows=pa.concat_tables(ordered), progress=merged(progress), is_end=is_end)


def _task_and_piece(packed: tuple[dict[str, Any], pa.Table]) -> tuple[int, int]:
    return packed[0]["task"], packed[0]["piece"]


def _one_source(pieces: list[pa.Table]) -> pa.Table:
    """All rows of a source, which several tasks may have read."""
    rows = pa.concat_tables(pieces)
    if len(pieces) == 1 or not has_places(rows.schema):
        return rows
    offsets = pc.struct_field(rows.column(METADATA_COLUMN), "offset")
    if offsets.null_count == 0 and (np.diff(offsets.to_numpy()) >= 0).all():
        return rows
    return rows.take(pc.sort_indices(offsets))


@cache
def labels(bucket_count: int) -> tuple[int, ...]:
    """The number that Spark knows each bucket by.

    Spark spreads groups over its partitions by a hash. The labels are chosen so that buckets are spread
    evenly, however many partitions there are, as long as that number divides the number of buckets.
    """
    found: dict[int, int] = {}
    label = 0
    while len(found) < bucket_count:
        found.setdefault(_spark_hash(label) % bucket_count, label)
        label += 1
    return tuple(found[bucket] for bucket in range(bucket_count))


def _spark_hash(value: int) -> int:
    """What Spark's `hash` gives for an int, which decides the partition: Murmur3, as a signed number."""
    mixed = (value * 0xCC9E2D51) & _MASK
    mixed = (_rotated(mixed, 15) * 0x1B873593) & _MASK
    hashed = (_rotated(_SEED ^ mixed, 13) * 5 + 0xE6546B64) & _MASK
    hashed ^= 4
    hashed = ((hashed ^ (hashed >> 16)) * 0x85EBCA6B) & _MASK
    hashed = ((hashed ^ (hashed >> 13)) * 0xC2B2AE35) & _MASK
    hashed ^= hashed >> 16
    return hashed - (1 << 32) if hashed >> 31 else hashed


def _rotated(value: int, by: int) -> int:
    return ((value << by) | (value >> (32 - by))) & _MASK
