"""Where streams were put together that wait for late rows in different ways.

Spark takes what is noted of a column from the first of the streams that are put together. An operator that
finds its watermark there would judge the rows of all others by it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame


def merged_marks(rows: DataFrame, key: str) -> set[str]:
    """What the columns of streams were marked with that became one; empty if that is the same in all.

    A stream whose column is not marked agrees with all others.
    """
    plan = rows._jdf.queryExecution().analyzed()  # noqa: SLF001 - there is no public way to it
    found: set[str] = set()
    for union in _unions(plan):
        outputs = [child.output() for child in _members(union.children())]
        for index in range(outputs[0].size()):
            marks = {mark for output in outputs if (mark := _mark(output.apply(index), key))}
            found |= marks if len(marks) > 1 else set()
    return found


def _unions(plan: Any) -> Iterator[Any]:
    if plan.getClass().getSimpleName() == "Union":
        yield plan
    for child in _members(plan.children()):
        yield from _unions(child)


def _members(sequence: Any) -> Iterator[Any]:
    return (sequence.apply(index) for index in range(sequence.size()))


def _mark(column: Any, key: str) -> str:
    metadata = column.metadata()
    return str(metadata.getString(key)) if metadata.contains(key) else ""
