from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
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
        thread.submit(partial(done.append, f"work {name}"), partial(done.append, name))
    thread.start()
    ends = [calls.get(timeout=DEADLINE_S) for _ in "abc"]
    thread.stop()
    assert done == ["work a", "work b", "work c"]
    for end in ends:
        end()
    assert done[3:] == ["a", "b", "c"]


def test_work_is_done_on_another_thread() -> None:
    names: SimpleQueue[str] = SimpleQueue()
    thread = DiskThread(lambda call: call())
    thread.submit(lambda: names.put(current_thread().name), lambda: None)
    thread.start()
    assert names.get(timeout=DEADLINE_S) == "headrace-disk"
    thread.stop()


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
    assert told.wait(DEADLINE_S)
    assert done.wait(DEADLINE_S)
    thread.stop()
    assert "a mistake" in caplog.text


def test_a_thread_that_is_stopped_finishes_what_it_does_and_begins_nothing_more() -> None:
    begun = Event()
    done: list[str] = []

    def work_until_stopped() -> None:
        begun.set()
        deadline_s = time.monotonic() + DEADLINE_S
        while not thread.is_stopping and time.monotonic() < deadline_s:
            time.sleep(0.001)
        done.append("first")

    thread = DiskThread(lambda call: call())
    thread.submit(work_until_stopped, lambda: done.append("told"))
    thread.submit(lambda: done.append("second"), lambda: done.append("told"))
    thread.start()
    assert begun.wait(DEADLINE_S)
    thread.stop()
    assert done == ["first", "told"]


def test_a_thread_that_was_never_started_can_be_stopped() -> None:
    DiskThread(lambda call: call()).stop()
