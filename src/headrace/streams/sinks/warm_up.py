"""Start Python on the executors while queries are being planned: their first batch need not wait for it.

Spark starts a Python process when a task first wants one, and keeps it for the next. What it imports for a
writer takes as long again.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from headrace.streams.session import JAVA_GONE

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_WRITER: Final = "headrace.streams.sinks.topic_task"


def warm_up_workers(session: SparkSession, count: int) -> None:
    """Have so many Python processes ready soon. Returns at once; that it fails means nothing."""
    threading.Thread(target=_warm_up, args=(session, count), name="warm-up", daemon=True).start()


def _warm_up(session: SparkSession, count: int) -> None:
    # Where it can't be done, the first batch will say why.
    with suppress(*JAVA_GONE):
        session.range(0, count, 1, count).mapInArrow(_import_writer, "id bigint").collect()


def _import_writer(shares: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    importlib.import_module(_WRITER)
    yield from shares
