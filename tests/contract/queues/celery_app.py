"""Tasks for the tests of Celery, which runs them in a process of its own."""

from __future__ import annotations

import os
from typing import Any

from celery import Celery
from celery.exceptions import Reject

app = Celery("contract", broker=os.environ["CONTRACT_BROKER"], backend=os.environ["CONTRACT_BACKEND"])
app.conf.update(
    task_default_queue=os.environ["CONTRACT_QUEUE"],
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
    broker_connection_retry_on_startup=True,
    event_queue_expires=60,
    result_expires=60,
)


@app.task  # type: ignore[untyped-decorator]  # Celery has no types.
def add(x: int, y: int) -> int:
    """A sum."""
    return x + y


@app.task(bind=True, max_retries=3)  # type: ignore[untyped-decorator]  # Celery has no types.
def fails_twice(self: Any) -> int:
    """Succeeds at the third attempt, and says which it was."""
    if self.request.retries < 2:
        raise self.retry(countdown=0.05)
    return int(self.request.retries)


@app.task  # type: ignore[untyped-decorator]  # Celery has no types.
def total(numbers: list[int]) -> int:
    """A sum of many."""
    return sum(numbers)


@app.task(bind=True)  # type: ignore[untyped-decorator]  # Celery has no types.
def rejected_once(self: Any) -> bool:
    """Goes back to the queue the first time."""
    if not self.request.delivery_info["redelivered"]:
        raise Reject("once more", requeue=True)
    return True
