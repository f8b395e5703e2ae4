"""What all writers of batches have in common that let tasks on executors write shares."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final, TypeVar

from pyspark import SparkContext, TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row

from headrace.errors import HeadraceError, PipelineFailed
from headrace.failpoints import Failpoint, arm, disarm, draw
from headrace.streams.failure import headrace_error

T = TypeVar("T")

AGAIN_MAX: Final = 2
"""How often a batch is written again after an error that may pass."""
TASK_FAILPOINTS: Final = ("pipeline.task.begun", "pipeline.task.produced", "pipeline.task.committed")


@contextmanager
def failpoints_of_tasks(names: Iterable[str] = TASK_FAILPOINTS) -> Iterator[tuple[Failpoint, ...]]:
    """What is to happen in the tasks of this batch. If no task gets there, it is left to the next batch."""
    drawn = [failpoint for name in names if (failpoint := draw(name)) is not None]
    gateway = SparkContext._gateway  # noqa: SLF001 - there is no public way to it
    assert gateway is not None, "there is a DataFrame, so there is Java"
    victims = (os.getpid(), gateway.proc.pid)
    yield tuple(replace(failpoint, hits_left=1, victims=victims) for failpoint in drawn)
    arm(replace(failpoint, hits_left=1) for failpoint in drawn)


@contextmanager
def armed(failpoints: Iterable[Failpoint]) -> Iterator[None]:
    """Let failpoints happen in this task, or in the driver where it does a task's work."""
    chosen = tuple(failpoints)
    arm(replace(each, victims=_victims(each)) for each in chosen)
    try:
        yield
    finally:
        for each in chosen:
            disarm(each.name)


def _victims(failpoint: Failpoint) -> tuple[int, ...]:
    """Who dies before this process does."""
    if os.getpid() in failpoint.victims:
        return tuple(victim for victim in failpoint.victims if victim != os.getpid())
    # Whoever kills a task kills the daemon that has made its process as well.
    return (*failpoint.victims, os.getppid())


def task_number() -> int:
    """Which share this task writes."""
    context = TaskContext.get()
    assert context is not None, "only Spark runs tasks"
    return context.partitionId()


@contextmanager
def told() -> Iterator[None]:
    """Raise what a task raised, where it was one of our own errors."""
    try:
        yield
    except PySparkException as error:
        ours = headrace_error(error)
        if ours is not None:
            raise ours from error
        raise


def run_tasks(
    make: Callable[[], DataFrame], *, after: type[HeadraceError], check: Callable[[], None]
) -> list[Row]:
    """What tasks answer. After such an error those that were not through run again: the ledger knows which.

    Where Spark keeps state, nothing before the tasks may be computed a second time, and it is not: the
    rows are there already, spread as they were. Adaptive plans, which Spark has for queries without state
    only, can't be run again; so a new one is made.
    """
    shares: list[DataFrame] = []

    def collect() -> list[Row]:
        if not shares or _is_adaptive(shares[-1]):
            shares.append(make())
        with told():
            return shares[-1].collect()

    return tried_again(collect, after=after, check=check)


def _is_adaptive(frame: DataFrame) -> bool:
    plan = frame._jdf.queryExecution().executedPlan()  # noqa: SLF001 - there is no public way to it
    return bool(plan.nodeName() == "AdaptiveSparkPlan")


def tried_again(work: Callable[[], T], *, after: type[HeadraceError], check: Callable[[], None]) -> T:
    """Do the work, and again after such an error, unless the check, which may also wait, raises."""
    for _ in range(AGAIN_MAX):
        try:
            return work()
        except after:
            check()
    return work()


def check_all_ran(pipeline: str, tasks: Iterable[int], task_count: int) -> None:
    """Raise unless each share was seen to by one task."""
    ran = sorted(tasks)
    if ran != list(range(task_count)):
        raise PipelineFailed(f"{pipeline}: Spark ran the tasks {ran} for a batch of {task_count} shares")
