"""Have Spark interpret the plans of small batches, and compile those of others.

Spark writes Java code for each plan and each projection of it, in each batch and each task, only to find that
the same code was compiled before. In a batch of some hundred rows that takes longer than all that the code
does. Interpreted, a plan is ready at once, and a row takes some microseconds more; results are the same.

How large the next batch will be is not known when it is planned; it is taken to be as large as the last. The
first is compiled, as it may have much to catch up with.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from headrace.streams.progress_log import added_up_end

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL_ROWS_MAX: Final = 2_000
"""Up to how many rows a batch is small; one behind a small batch, up to twice as many."""

_COMPILED: Final = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
"""Spark's own defaults."""
_INTERPRETED: Final = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


class Interpreting:
    """Decides on the batches of one query."""

    def __init__(self, checkpoint: Path) -> None:
        self._checkpoint = checkpoint
        self._is_interpreted = False
        self._is_chosen: bool | None = None
        """Whether somebody else has decided; None where that was not asked yet."""
        self._last: tuple[int, int] | None = None
        """The number of the last batch, and where it ended."""

    def settle_next(self, batch_id: int, session: SparkSession) -> None:
        """Decide on the batch behind this one. `session` is the query's own."""
        row_count = self._row_count(batch_id)
        if row_count is None:
            return
        is_small = row_count <= SMALL_ROWS_MAX * (2 if self._is_interpreted else 1)
        if is_small is self._is_interpreted:
            return
        if self._is_chosen is None:
            self._is_chosen = any(session.conf.get(key) != usual for key, usual in _COMPILED.items())
        if not self._is_chosen:
            for key, value in (_INTERPRETED if is_small else _COMPILED).items():
                session.conf.set(key, value)
            self._is_interpreted = is_small

    def _row_count(self, batch_id: int) -> int | None:
        """How many offsets the batch has read; None where its checkpoint does not tell."""
        end = added_up_end(self._checkpoint, batch_id)
        if self._last is not None and self._last[0] == batch_id - 1:
            start: int | None = self._last[1]
        else:
            start = added_up_end(self._checkpoint, batch_id - 1)
        self._last = None if end is None else (batch_id, end)
        return None if end is None or start is None else end - start
