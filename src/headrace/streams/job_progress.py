"""How many records Spark's jobs have read so far, looked at from a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from pyspark.sql import SparkSession

from headrace.streams.session import JAVA_GONE

EVERY_S: Final = 1.0
"""How often to look. Spark's tasks report every ten seconds, and when they end."""


@contextmanager
def watched(session: SparkSession, on_records: Callable[[int], None]) -> Iterator[None]:
    """Tell how many records were read by the jobs that run meanwhile, from another thread, and never less."""
    store = session.sparkContext._jsc.sc().statusStore()  # noqa: SLF001 - there is no public way to it
    is_done = threading.Event()

    def watch() -> None:
        most = 0
        while not is_done.wait(EVERY_S):
            try:
                now = _records_read(store)
            except JAVA_GONE:
                # Whoever waits for the jobs will tell it.
                return
            if now > most:
                most = now
                on_records(most)

    thread = threading.Thread(target=watch, name="headrace-job-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_done.set()
        thread.join()


def _records_read(store: Any) -> int:
    stages = store.activeStages()
    return sum(int(stages.apply(index).inputRecords()) for index in range(stages.size()))
