"""What windows have come to: reads the results of windows.py from their topics, and compares them."""

from __future__ import annotations

import sys

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from cards import read_values
from windows_reference import Ints, sorted_rows


def read_results(bootstrap: str, topic: str) -> Ints:
    """All results, in the order in which they were written."""
    text = b"\n".join(read_values(bootstrap, topic))
    if not text:
        return np.empty((0, 5), np.int64)
    schema = pa.schema(
        {
            "card": pa.string(),
            "window": pa.struct({"start": pa.string(), "end": pa.string()}),
            "start": pa.int64(),
            "end": pa.int64(),
            "count": pa.int64(),
            "total": pa.int64(),
        }
    )
    options = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    found = pj.read_json(pa.BufferReader(text), parse_options=options)
    card = pc.cast(pc.utf8_slice_codeunits(found["card"], 5), pa.int64())
    bounds = [
        found[side] if found["window"].null_count else _ms(found["window"], side) for side in ("start", "end")
    ]
    columns = [each.to_numpy().astype(np.int64) for each in (card, *bounds, found["count"], found["total"])]
    return np.stack(columns, axis=1)


def _ms(window: pa.ChunkedArray, side: str) -> pa.ChunkedArray:
    times = pc.cast(pc.struct_field(window, side), pa.timestamp("us", "UTC"))
    return pc.divide(pc.cast(times, pa.int64()), 1000)


def read_late(bootstrap: str, topic: str) -> Ints:
    """The numbers of the rows that were late."""
    text = b"\n".join(read_values(bootstrap, topic))
    options = pj.ParseOptions(
        explicit_schema=pa.schema({"tx": pa.int64()}), unexpected_field_behavior="ignore"
    )
    found = pj.read_json(pa.BufferReader(text), parse_options=options)["tx"].to_numpy() if text else []
    return np.sort(np.asarray(found, np.int64))


def last_updates(rows: Ints) -> Ints:
    """What Spark's updates come to: the last of each card and window."""
    newest_first = rows[::-1]
    _, places = np.unique(newest_first[:, :2], axis=0, return_index=True)
    return sorted_rows(newest_first[places])


def check(name: str, found: Ints, wanted: Ints) -> None:
    """Exit where they differ."""
    if not np.array_equal(found, wanted):
        count = min(len(found), len(wanted))
        is_other = found[:count] != wanted[:count]
        differing = np.flatnonzero(is_other.any(axis=1) if is_other.ndim > 1 else is_other)
        place = int(differing[0]) if len(differing) else count
        sys.exit(
            f"{name}: {len(found):,} rows instead of {len(wanted):,}; the first that differs is "
            f"{found[place : place + 1].tolist()}, and should be {wanted[place : place + 1].tolist()}"
        )
