"""Pack a topic's rows in no more tasks than make use of the processors.

A topic has a task for each of its partitions, and each costs some hundredths of a second of Spark's and
Python's work, whatever it reads. Where Spark runs in the driver's process, a few processors do all of it; so
rows of several partitions are packed by one task, partition after partition.

Only where nothing but Spark's own expressions is between the topic and the operator:

- Functions in Python may wait for others, and do so all at once as long as each task runs by itself.
- After a join, a union or another operator, a partition's rows come by several tasks, and how they were
  grouped would be seen: the same batch must be packed alike on a machine with other processors.
- Who has asked for a number of partitions has it.

And only where the broker is on this machine: Spark asks it three times for each partition, and asks a far one
better for all at once.
"""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import DataFrame

from headrace.config import Address
from headrace.streams.buckets.sources import FLAT_PLACES
from headrace.streams.local_tasks import tasks_at_once

_PLAIN_NODES: Final = frozenset({"Project", "Filter", "Generate", "EventTimeWatermark", "SubqueryAlias"})
"""Topics of JSON are decoded by a `Generate`, too."""
_TOPIC: Final = "StreamingRelationV2"
_BOOTSTRAP: Final = "kafka.bootstrap.servers"
_PATTERNS: Final = "org.apache.spark.sql.catalyst.trees.TreePattern"


def in_fewer_tasks(rows: DataFrame) -> DataFrame:
    """The rows, whose places are columns of their own where they are known, in few tasks if that may be."""
    # Rows that don't tell where they came from are told apart by their tasks.
    if not rows.isStreaming or not set(FLAT_PLACES.values()).issubset(rows.columns):
        return rows
    task_count = tasks_at_once(rows.sparkSession.sparkContext.master or "")
    if task_count is None or not _is_straight_from_topic(rows):
        return rows
    return rows.coalesce(task_count)


def _is_straight_from_topic(rows: DataFrame) -> bool:
    # There is no public way to a plan.
    plan: Any = rows._jdf.queryExecution().analyzed()  # noqa: SLF001
    patterns: Any = getattr(rows.sparkSession.sparkContext._jvm, _PATTERNS)  # noqa: SLF001
    if plan.containsPattern(patterns.PYTHON_UDF()):
        return False
    while plan.nodeName() in _PLAIN_NODES:
        plan = plan.children().head()
    return plan.nodeName() == _TOPIC and _is_here(plan.extraOptions().get(_BOOTSTRAP))


def _is_here(bootstrap: str | None) -> bool:
    """Whether all brokers have addresses of this machine; Kafka's clients pass over empty ones."""
    named = [each.strip() for each in (bootstrap or "").split(",") if each.strip()]
    return bool(named) and all(Address.parse(each).is_loopback for each in named)
