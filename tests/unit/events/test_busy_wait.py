"""Waiting for an answer without going to sleep."""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from headrace.events.postgres import busy_wait
from headrace.events.postgres.busy_wait import ATTEMPTS_SKIPPED_MAX, BusyWait

LONG_S = 20.0
"""Nothing takes that long, unless it never ends."""


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
    monkeypatch.setattr(busy_wait, "SPIN_S_MAX", LONG_S)
    theirs.send(b"answer")

    wait = BusyWait(ours.fileno())
    wait.wait()

    assert (ours.recv(100), wait._skip) == (b"answer", 0)


def test_it_returns_when_the_other_end_is_gone(
    ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = ends
    monkeypatch.setattr(busy_wait, "SPIN_S_MAX", LONG_S)
    theirs.close()

    wait = BusyWait(ours.fileno())
    wait.wait()

    assert (ours.recv(100), wait._skip) == (b"", 0)


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
    monkeypatch.setattr(busy_wait, "SPIN_S_MAX", LONG_S)
    wait.wait()
    wait.wait()

    assert wait._skip == 0


@pytest.mark.parametrize(
    ("processors", "share", "expected"),
    [
        (4, "max 100000", True),
        (4, "150000 100000", True),
        (4, "100000 100000", False),
        (4, "50000 100000", False),
        (4, "", True),
        (1, "max 100000", False),
    ],
)
def test_it_is_worth_it_where_another_processor_is_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, processors: int, share: str, *, expected: bool
) -> None:
    told = tmp_path / "cpu.max"
    told.write_text(share)
    monkeypatch.setattr(busy_wait, "CONTAINER_SHARE", told)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: set(range(processors)), raising=False)

    assert busy_wait.is_worth_it() is expected


def test_it_is_not_worth_it_where_nobody_can_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(select, "poll")

    assert not busy_wait.is_worth_it()
