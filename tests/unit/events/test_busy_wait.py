"""Waiting for an answer without going to sleep."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from itertools import pairwise

import pytest

from headrace.events.postgres import busy_wait
from headrace.events.postgres.busy_wait import ATTEMPTS_SKIPPED_MAX, BusyWait


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


class Questions:
    """A socket that is never answered by, and counts how often somebody has asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self._now_s = 0.0
        monkeypatch.setattr(time, "perf_counter", self._tick)

    def _tick(self) -> float:
        # So that each wait that is not skipped asks twice.
        self._now_s += busy_wait.SPIN_S_MAX / 2.5
        return self._now_s

    def poll(self, _timeout_ms: int) -> list[object]:
        self.count += 1
        return []


def test_it_returns_when_there_is_an_answer(
    ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = ends
    monkeypatch.setattr(busy_wait, "SPIN_S_MAX", 3600.0)
    theirs.send(b"answer")

    BusyWait(ours.fileno()).wait()

    assert ours.recv(100) == b"answer"


def test_it_returns_when_the_other_end_is_gone(
    ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = ends
    monkeypatch.setattr(busy_wait, "SPIN_S_MAX", 3600.0)
    theirs.close()

    BusyWait(ours.fileno()).wait()

    assert ours.recv(100) == b""


def test_it_gives_up_after_a_moment(ends: tuple[socket.socket, socket.socket]) -> None:
    began_s = time.perf_counter()

    BusyWait(ends[0].fileno()).wait()

    assert time.perf_counter() - began_s >= busy_wait.SPIN_S_MAX


def test_after_each_time_in_vain_more_answers_are_waited_for_asleep(
    ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    wait, questions = BusyWait(ends[0].fileno()), Questions(monkeypatch)
    wait._poll = questions  # type: ignore[assignment]  # all that is asked of it
    asked = list[bool]()
    for _ in range(300):
        before = questions.count
        wait.wait()
        asked.append(questions.count > before)
    tried = [number for number, each in enumerate(asked) if each]

    assert [after - before - 1 for before, after in pairwise(tried)] == [
        *(1, 3, 7, 15, 31, 63),
        *[ATTEMPTS_SKIPPED_MAX] * (len(tried) - 7),
    ]


def test_an_answer_in_time_ends_the_pause(
    ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = ends
    wait = BusyWait(ours.fileno())
    wait.wait()
    theirs.send(b"answer")
    monkeypatch.setattr(busy_wait, "SPIN_S_MAX", 3600.0)
    wait.wait()
    wait.wait()

    assert wait._skip == 0
