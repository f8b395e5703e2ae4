from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from threading import Event, current_thread

import pytest

from headrace.kafka.disk_thread import DiskThread

DEADLINE_S = 30.0


def test_work_is_done_in_its_order_and_each_end_is_told() -> None:
    calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
    thread = DiskThread(calls.put)
    done: list[str] = []
    for name in "abc":
        thread.submit(lambda name=name: done.append(f"work {name}"), lambda name=name: done.append(name))  # type: ignore[misc]  # the default keeps this turn's name
    thread.start()
    thread.stop()
    assert done == ["work a", "work b", "work c"]
    for _ in "abc":
        calls.get(timeout=DEADLINE_S)()
    assert done[3:] == ["a", "b", "c"]


def test_work_is_done_on_another_thread() -> None:
    names: list[str] = []
    thread = DiskThread(lambda call: call())
    thread.submit(lambda: names.append(current_thread().name), lambda: None)
    thread.start()
    thread.stop()
    assert names == ["headrace-disk"]


def test_work_that_fails_is_logged_and_its_end_told_and_the_next_is_done(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail() -> None:
        raise RuntimeError("a mistake")

    told, done = Event(), Event()
    thread = DiskThread(lambda call: call())
    thread.submit(fail, told.set)
    thread.submit(done.set, lambda: None)
    thread.start()
    thread.stop()
    assert told.is_set()
    assert done.is_set()
    assert "a mistake" in caplog.text


def test_a_thread_that_was_never_started_can_be_stopped() -> None:
    DiskThread(lambda call: call()).stop()
