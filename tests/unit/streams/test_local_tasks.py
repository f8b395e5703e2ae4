"""What is known of tasks that run beside the driver."""

from __future__ import annotations

import os

import pytest

from headrace.streams.local_tasks import tasks_at_once


@pytest.mark.parametrize(
    ("master", "count"), [("local", 1), ("local[3]", 3), ("local[64]", 4), ("local[*]", 4), ("local[2,5]", 2)]
)
def test_no_more_tasks_than_slots_and_processors_run_at_once(
    monkeypatch: pytest.MonkeyPatch, master: str, count: int
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 4)

    assert tasks_at_once(master) == count


@pytest.mark.parametrize("master", ["spark://host:7077", "yarn", "k8s://host", "local-cluster[2,1,1024]", ""])
def test_how_many_tasks_a_cluster_runs_is_not_known(master: str) -> None:
    assert tasks_at_once(master) is None
