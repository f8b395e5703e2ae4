"""Tells the first and the last rows of a snapshot from the others, as Debezium does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from headrace.cdc.chunks import CopiedRow
from headrace.cdc.envelope import SnapshotMarker, SnapshotPoint


def marked(
    rows: Iterable[CopiedRow], point: SnapshotPoint, *, starts_table: bool, ends_table: bool, ends_all: bool
) -> Iterator[tuple[CopiedRow, SnapshotPoint]]:
    """Each row of a chunk with its point. Of a table of one row, the end counts for more than the
    beginning."""
    first = replace(point, marker="first_in_data_collection")
    last_marker: SnapshotMarker = "last" if ends_all else "last_in_data_collection"
    current = first if starts_table else point
    waiting: CopiedRow | None = None
    for row in rows:
        if waiting is not None:
            yield waiting, current
            current = point
        waiting = row
    if waiting is not None:
        yield waiting, replace(point, marker=last_marker) if ends_table else current
