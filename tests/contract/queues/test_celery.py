"""Celery: tasks, retries, times to come, chords, and what a worker gives back; results in Redis or by RPC."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from celery import Celery, chord, group, signature

from headrace.testing.redis import TestRedis
from queues.conftest import AmqpServer

WITHIN_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A worker and how to reach it."""

    app: Any

    def task(self, name: str, *arguments: Any, **options: Any) -> Any:
        """A task that has not been sent."""
        return signature(f"queues.celery_app.{name}", args=arguments, app=self.app, **options)


@pytest.fixture
def work(amqp: AmqpServer, headrace_redis: TestRedis, name: str, tmp_path: Path) -> Iterator[Work]:
    backend = headrace_redis.url.replace("unix://", "redis+socket://")
    environment = {
        **os.environ,
        "CONTRACT_BROKER": amqp.url,
        "CONTRACT_BACKEND": backend,
        "CONTRACT_QUEUE": name,
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    app = Celery("client", broker=amqp.url, backend=backend)
    app.conf.update(task_default_queue=name, result_expires=60)
    with (tmp_path / "worker.log").open("wb") as log:
        worker = subprocess.Popen(
            [
                *(sys.executable, "-m", "celery", "-A", "queues.celery_app", "worker"),
                *("--pool=solo", "--without-gossip", "--without-mingle", f"--hostname={name}@%h"),
            ],
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=tmp_path,
        )
    try:
        yield Work(app=app)
    finally:
        worker.terminate()
        worker.wait()
        with app.connection_for_write() as connection:
            connection.default_channel.queue_delete(name)
        app.close()


def test_celery_does_what_it_does_on_rabbitmq(work: Work) -> None:
    """One worker for all of it: starting it takes longer than anything else."""
    assert work.task("add", 2, 3).apply_async().get(timeout=WITHIN_S) == 5
    assert work.task("fails_twice").apply_async().get(timeout=WITHIN_S) == 2
    eta = datetime.now(UTC) + timedelta(milliseconds=200)
    assert work.task("add", 1, 1).apply_async(eta=eta).get(timeout=WITHIN_S) == 2
    assert work.task("rejected_once").apply_async().get(timeout=WITHIN_S) is True
    header = group(work.task("add", n, n) for n in range(5))
    assert chord(header, app=work.app)(work.task("total")).get(timeout=WITHIN_S) == 20
    chain = work.task("add", 1, 2) | work.task("add", 10)
    assert chain.apply_async().get(timeout=WITHIN_S) == 13
    expired = work.task("add", 1, 1).apply_async(expires=-1)
    assert work.task("add", 4, 4).apply_async().get(timeout=WITHIN_S) == 8
    assert expired.state in {"REVOKED", "PENDING"}
