"""Rows that only tell how far their source has come, beside those that an operator is given.

An operator knows its sources by the rows that reach it. Who builds a pipeline can tell it of more:
`time_only` has every operator that is made meanwhile, and reads the same source, take such rows as the
source's progress, and as nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from pyspark.sql import DataFrame

TIME_COLUMN: Final = "_event_time"
"""Such rows have `_kafka`, and this."""

_current: Final[ContextVar[Sequence[DataFrame]]] = ContextVar("time_only", default=())


@contextmanager
def time_only(rows: Sequence[DataFrame]) -> Iterator[None]:
    """Let operators that are made meanwhile know of these rows."""
    token = _current.set(rows)
    try:
        yield
    finally:
        _current.reset(token)


def time_only_of(rows: DataFrame) -> list[DataFrame]:
    """The rows that tell of the sources which these come from."""
    known = _current.get()
    own = source_numbers(rows) if known else set()
    return [each for each in known if source_numbers(each) & own]


def source_numbers(rows: DataFrame) -> set[int]:
    """The session's numbers of the streams that rows come from."""
    leaves = rows._jdf.queryExecution().analyzed().collectLeaves()  # noqa: SLF001 - there is no public way
    streams = (leaves.apply(index) for index in range(leaves.size()))
    return {leaf.output().head().exprId().id() for leaf in streams if leaf.isStreaming()}
