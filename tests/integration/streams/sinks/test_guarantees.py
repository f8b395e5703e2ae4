"""The three guarantees under the same crashes: neither losses nor duplicates, duplicates, losses."""

from __future__ import annotations

import errno
import json
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import headrace.streams as hr
from headrace.config import Guarantee, StreamsConfig
from headrace.errors import ConfigError, PipelineFailed
from headrace.streams.admin import ensure_topics
from headrace.streams.plan import make_plan
from headrace.streams.queries import Queries
from headrace.testing.failpoints import failpoint
from headrace.testing.waiting import eventually

pytestmark = pytest.mark.spark

WITHIN_S = 240.0
numbers = hr.topic("numbers", schema="n int not null", partitions=1)


@hr.pipeline(writes=hr.topic("copies", key="n", partitions=1))
def copies(numbers: DataFrame) -> DataFrame:
    return numbers.select("n")


@pytest.fixture
def run_until(
    spark: SparkSession, kafka: Any, config: StreamsConfig
) -> Callable[[Guarantee, Callable[[], bool]], None]:
    """Run the pipeline from its checkpoint until something holds, or until it fails, and stop it."""
    plan = make_plan([copies])
    ensure_topics(config, plan.topics())

    def run(guarantee: Guarantee, holds: Callable[[], bool]) -> None:
        queries = Queries(session=spark, config=replace(config, guarantee=guarantee), realtime=False)
        queries.start(plan, [])

        def holds_or_fails() -> bool:
            queries.check()
            return holds()

        try:
            eventually(holds_or_fails, within_s=WITHIN_S, pause_s=0.05)
        except PipelineFailed:
            pass
        finally:
            queries.stop()

    return run


def produce(kafka: Any, first: int, count: int) -> None:
    kafka.produce("numbers", [(None, json.dumps({"n": n})) for n in range(first, first + count)])


@pytest.mark.parametrize(
    ("guarantee", "lost", "doubled"),
    [("exactly-once", False, False), ("at-least-once", False, True), ("at-most-once", True, False)],
)
def test_crashes_cost_what_the_guarantee_says(
    kafka: Any,
    config: StreamsConfig,
    run_until: Any,
    guarantee: Guarantee,
    *,
    lost: bool,
    doubled: bool,
) -> None:
    commits = config.checkpoints_dir / "copies" / "commits"
    produce(kafka, 0, 50)
    run_until(guarantee, (commits / "0").exists)
    # All is written, and Spark does not know it.
    shutil.rmtree(commits)
    produce(kafka, 50, 50)
    run_until(guarantee, (commits / "1").exists)
    produce(kafka, 100, 50)
    # A task dies after its commit. Spark's own sink has no such moment.
    with failpoint("pipeline.task.committed", error=errno.EIO):
        run_until(guarantee, (commits / "2").exists)
    produce(kafka, 150, 1)
    run_until(guarantee, (commits / "3").exists)

    counts: Counter[int] = Counter(
        json.loads(record.value)["n"] for record in kafka.read("copies", lambda seen: _has(seen, 150))
    )

    assert (len(counts) < 151) is lost
    assert (max(counts.values()) > 1) is doubled
    assert counts.keys() <= set(range(151))


def _has(records: list[Any], number: int) -> bool:
    return any(json.loads(record.value)["n"] == number for record in records)


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-most-once"])
def test_real_time_mode_refuses_what_it_can_not_promise(guarantee: Guarantee) -> None:
    config = StreamsConfig(guarantee=guarantee)
    with pytest.raises(ConfigError, match=f"real-time mode can't write {guarantee}: run without --realtime"):
        config.guarantee_of(realtime=True)
    assert config.guarantee_of(realtime=False) == guarantee
    assert StreamsConfig().guarantee_of(realtime=False) == "exactly-once"
    assert StreamsConfig().guarantee_of(realtime=True) == "at-least-once"
