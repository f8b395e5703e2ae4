"""Have Spark interpret the plans of small batches, and compile those of others.

Spark writes Java code for each plan and each projection of it, in each batch and each task, only to find that
the same code was compiled before: a fifth of what Java did in the tasks of batches of some hundred rows.
Interpreted, a plan is ready at once, and a row takes longer. Results are the same; but which
rows an expression that raises is computed for may differ, as it does between any two plans of Spark's.

How large a batch is, is known when it has been planned. So a plan is taken to be for as many rows as the last
one was; tasks go by what is known then. Where the last one is not known, all is compiled. Who sets one of
these settings of Spark decides on all batches.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from headrace.streams.progress_log import added_up_end

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger: Final = logging.getLogger(__name__)

SMALL_ROWS_MAX: Final = 2_000
"""Up to how many records a batch is small; one behind a small batch, up to twice as many."""

MODE: Final = "spark.sql.codegen.factoryMode"
COMPILED: Final = "FALLBACK"
"""Spark's own default."""
INTERPRETED: Final = "NO_CODEGEN"
_CHOSEN_BY: Final = (MODE, "spark.sql.codegen.wholeStage")
_TABLE_IN_PLAN: Final = "LocalRelation"
_PATTERNS: Final = "org.apache.spark.sql.catalyst.trees.TreePattern"


class PlanMode:
    """Decides on the batches of one query."""

    def __init__(self, checkpoint: Path) -> None:
        self._checkpoint = checkpoint
        self._is_interpreted = False
        self._is_chosen: bool | None = None
        """Whether somebody else has decided; None where that was not asked yet."""
        self._last: tuple[int, int] | None = None
        """The number of the last batch, and where it ended."""

    def settle(self, batch_id: int, session: SparkSession, written_before: int = 0) -> None:
        """Decide on the tasks of a batch that is to be run, and on the plan of the next one.

        `session` is the query's own; `written_before` counts the rows that the batch before has made.
        """
        read_count = self._read_count(batch_id)
        limit = SMALL_ROWS_MAX * (2 if self._is_interpreted else 1)
        is_small = read_count is not None and max(read_count, written_before) <= limit
        if is_small is self._is_interpreted or self._is_chosen:
            return
        try:
            if self._is_chosen is None:
                self._is_chosen = any(session.conf.get(key, None) is not None for key in _CHOSEN_BY)
            if not self._is_chosen:
                session.conf.set(MODE, INTERPRETED if is_small else COMPILED)
                self._is_interpreted = is_small
        except (Py4JError, PySparkException) as error:
            # The batch is none the worse for it.
            logger.warning("plans stay as they are: %s", error)
            self._is_chosen = True

    def _read_count(self, batch_id: int) -> int | None:
        """How many offsets the batch reads; None where its checkpoint does not tell."""
        end = added_up_end(self._checkpoint, batch_id)
        if self._last is not None and self._last[0] == batch_id - 1:
            start: int | None = self._last[1]
        else:
            start = added_up_end(self._checkpoint, batch_id - 1)
        self._last = None if end is None else (batch_id, end)
        return None if end is None or start is None else max(0, end - start)


def reads_streams_only(rows: DataFrame) -> bool:
    """Whether a batch reads no more than its records: no table, which it would go through as a whole."""
    # There is no public way to a plan.
    plan: Any = rows._jdf.queryExecution().analyzed()  # noqa: SLF001
    patterns: Any = getattr(rows.sparkSession.sparkContext._jvm, _PATTERNS)  # noqa: SLF001
    if plan.containsPattern(patterns.PLAN_EXPRESSION()):
        # Such as `id IN (SELECT id FROM ...)`, which is no leaf.
        return False
    leaves = plan.collectLeaves()
    return all(_is_stream_or_empty(leaves.apply(index)) for index in range(leaves.size()))


def _is_stream_or_empty(leaf: Any) -> bool:
    # `transformWithState` has a table of states to begin with, which is empty where none are given.
    return bool(leaf.isStreaming()) or (leaf.nodeName() == _TABLE_IN_PLAN and bool(leaf.data().isEmpty()))
