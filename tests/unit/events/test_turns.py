"""Threads take turns on a stream."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event

from headrace.events.turns import Turns
from headrace.testing.waiting import eventually


def test_one_stream_has_one_turn_and_others_have_their_own() -> None:
    turns, go, order = Turns(), Event(), list[str]()

    def first() -> None:
        with turns.of("a-1"):
            order.append("first")
            assert go.wait(60)
            order.append("first ends")

    def second() -> None:
        with turns.of("a-1"):
            order.append("second")

    with ThreadPoolExecutor(2) as threads:
        running = [threads.submit(first)]
        eventually(lambda: order)
        running.append(threads.submit(second))
        eventually(lambda: turns._turns["a-1"].user_count == 2)
        with turns.of("a-2"):
            order.append("other stream")
        go.set()
        for each in running:
            each.result(60)

    assert order == ["first", "other stream", "first ends", "second"]
    assert turns._turns == {}
