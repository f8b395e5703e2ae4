"""What all writers of batches have in common that let tasks on executors write shares."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from pyspark import SparkContext, TaskContext
from pyspark.errors import PySparkException

from headrace.errors import PipelineFailed
from headrace.failpoints import Failpoint, arm, disarm, draw
from headrace.streams.failure import headrace_error

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
    """Let failpoints happen in this task."""
    chosen = tuple(failpoints)
    # Whoever kills a task kills the daemon that has made its process as well.
    arm(replace(each, victims=(*each.victims, os.getppid())) for each in chosen)
    try:
        yield
    finally:
        for each in chosen:
            disarm(each.name)


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


def check_all_ran(pipeline: str, tasks: Iterable[int], task_count: int) -> None:
    """Raise unless each share was seen to by one task."""
    ran = sorted(tasks)
    if ran != list(range(task_count)):
        raise PipelineFailed(f"{pipeline}: Spark ran the tasks {ran} for a batch of {task_count} shares")
