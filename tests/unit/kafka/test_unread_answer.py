"""Answers that go from their files to a socket: at once, as the client takes them, or not at all."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import CorruptBatch
from headrace.kafka import unread_answer, unsent_answers
from headrace.kafka.unread_answer import UnreadAnswer, hand_over
from headrace.kafka.unsent_answers import UnsentAnswers
from headrace.log.disk import SYSTEM_DISK
from headrace.log.stored_batches import StoredBatches

Ends = tuple[socket.socket, socket.socket]
CONTENT = os.urandom(1 << 20) * 4
"""More than a socket takes that nobody reads."""


class Stored:
    """Bytes that would lie in a file; of one call, the socket takes so many."""

    def __init__(self, content: bytes, taken_bytes: int) -> None:
        self.content = content
        self._taken_bytes = taken_bytes

    def __len__(self) -> int:
        return len(self.content)

    def send(self, target: int, size_bytes_max: int) -> int:
        return os.write(target, self.content[: min(self._taken_bytes, size_bytes_max)])

    def after(self, size_bytes: int) -> Stored:
        return Stored(self.content[size_bytes:], self._taken_bytes)


class Segment:
    """As much of one as its batches need: a file that can be opened while it has its name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.write_bytes(CONTENT)
        self._file = os.open(path, os.O_RDONLY)
        self.may_lend = True

    def open(self) -> int:
        if self._file < 0:
            raise FileNotFoundError(self.path)
        return self._file

    def remove(self) -> None:
        """As retention does it."""
        os.close(self._file)
        self._file = -1
        self.path.unlink()

    def batches(self) -> StoredBatches:
        segment: Any = self
        return StoredBatches(segment, SYSTEM_DISK, 0, len(CONTENT), piece_bytes=100_000)


class Waiting:
    """An answer with a head, batches and a tail, that waits for a client to take it."""

    def __init__(self, batches: StoredBatches, ours: socket.socket) -> None:
        self.unsent = UnsentAnswers(1)
        self.left: list[Any] | None = None
        self.ended = asyncio.Event()
        self.answer = UnreadAnswer([b"head", batches, b"tail"], self.unsent)
        self.rest = self.answer.begin(ours.fileno())
        self.is_waiting = self.answer.wait(ours.fileno(), self._end)

    def _end(self, left: list[Any]) -> None:
        self.left = left
        self.ended.set()


@pytest.fixture
def ends() -> Iterator[Ends]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        yield ours, theirs


@pytest.fixture
def segment(tmp_path: Path) -> Segment:
    return Segment(tmp_path / "segment")


@pytest.fixture
def open_file_count() -> Callable[[], int]:
    return lambda: sum(1 for _ in Path("/dev/fd").iterdir())


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(**fixtures: Any) -> None:
        asyncio.run(test(**fixtures))

    return run


async def take(theirs: socket.socket, size_bytes: int) -> bytes:
    """Read so much, as a client does that takes its time."""
    loop, taken = asyncio.get_running_loop(), b""
    while len(taken) < size_bytes:
        taken += await loop.sock_recv(theirs, min(size_bytes - len(taken), 100_000))
    return taken


async def in_time(what: Awaitable[Any]) -> None:
    await asyncio.wait_for(what, 60)


def test_parts_go_out_in_their_order_and_nothing_is_left(ends: Ends) -> None:
    ours, theirs = ends

    assert hand_over([b"head", Stored(b"batches", 7), b"tail"], ours.fileno()) == []

    assert theirs.recv(100) == b"headbatchestail"


def test_behind_a_part_that_is_not_taken_as_a_whole_nothing_is_sent(ends: Ends) -> None:
    ours, theirs = ends

    left = hand_over([b"head", Stored(b"batches", 3), b"tail"], ours.fileno())

    assert theirs.recv(100) == b"headbat"
    rest, tail = left
    assert (rest.content, tail) == (b"ches", b"tail")


def test_bytes_that_are_not_taken_as_a_whole_are_left(ends: Ends) -> None:
    ours, theirs = ends
    large = bytes(range(256)) * 40_000

    rest, tail = hand_over([large, b"tail"], ours.fileno())

    taken = b""
    while len(taken) < len(large) - len(rest):
        taken += theirs.recv(len(large))
    assert taken + rest == large
    assert tail == b"tail"


def test_no_more_is_sent_than_may_go_in_one_turn(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unread_answer, "TURN_BYTES_MAX", 10)
    ours, theirs = ends

    left = hand_over([b"head", Stored(b"batches", 7), Stored(b"more", 4)], ours.fileno())

    assert theirs.recv(100) == b"headbatche"
    assert [each.content for each in left] == [b"s", b"more"]


def test_a_client_that_is_gone_leaves_all(ends: Ends) -> None:
    ours, theirs = ends
    theirs.close()

    assert hand_over([b"head", b"tail"], ours.fileno()) == [b"head", b"tail"]


@in_a_loop
async def test_what_a_socket_does_not_take_at_once_waits_in_its_file_until_the_client_has_taken_all(
    ends: Ends, segment: Segment, open_file_count: Callable[[], int]
) -> None:
    ours, theirs = ends
    before = open_file_count()
    waiting = Waiting(segment.batches(), ours)
    assert waiting.is_waiting
    assert waiting.unsent.held_file_count == 1
    assert waiting.unsent.size_bytes == 0

    assert await take(theirs, len(CONTENT) + 8) == b"head" + CONTENT + b"tail"

    await in_time(waiting.ended.wait())
    assert waiting.left == []
    assert waiting.unsent.held_file_count == 0
    assert open_file_count() == before


@in_a_loop
async def test_it_is_known_when_the_client_has_last_taken_something(ends: Ends, segment: Segment) -> None:
    waiting = Waiting(segment.batches(), ends[0])
    began_s = waiting.answer.taken_s

    await take(ends[1], len(CONTENT) // 2)

    assert waiting.answer.taken_s > began_s
    waiting.answer.drop()


@in_a_loop
async def test_a_segment_that_goes_meanwhile_is_sent_to_its_end(ends: Ends, segment: Segment) -> None:
    ours, theirs = ends
    waiting = Waiting(segment.batches(), ours)
    segment.remove()

    assert await take(theirs, len(CONTENT) + 8) == b"head" + CONTENT + b"tail"

    await in_time(waiting.ended.wait())
    assert waiting.left == []


@in_a_loop
async def test_a_client_that_goes_meanwhile_leaves_the_rest_and_no_file_open(
    ends: Ends, segment: Segment, open_file_count: Callable[[], int]
) -> None:
    ours, theirs = ends
    before = open_file_count()
    waiting = Waiting(segment.batches(), ours)
    theirs.close()

    await in_time(waiting.ended.wait())

    assert waiting.left is not None
    assert waiting.left[-1] == b"tail"
    assert waiting.unsent.held_file_count == 0
    assert open_file_count() == before - 1, "the client's own end is closed, and nothing else stays open"


@in_a_loop
async def test_a_file_that_has_lost_its_end_is_given_back_to_be_read_and_that_tells(
    ends: Ends, segment: Segment
) -> None:
    ours, theirs = ends
    waiting = Waiting(segment.batches(), ours)
    failed = asyncio.Event()

    def read(left: list[Any]) -> None:
        with pytest.raises(CorruptBatch, match="the file ends"):
            left[0].read()
        failed.set()

    waiting.answer._on_end = read  # Only then is the file still there.
    os.truncate(segment.path, len(CONTENT) // 2)

    await take(theirs, 4 + len(CONTENT) // 2)

    await in_time(failed.wait())
    assert not segment.may_lend
    assert waiting.unsent.held_file_count == 0


@pytest.mark.parametrize("limit", ["HELD_FILES_MAX", "HELD_FILES_PER_ANSWER_MAX"])
@pytest.mark.parametrize("allowed_count", [0, 1])
@in_a_loop
async def test_above_a_limit_of_files_nothing_waits_in_them(
    ends: Ends, segment: Segment, monkeypatch: pytest.MonkeyPatch, limit: str, allowed_count: int
) -> None:
    monkeypatch.setattr(unsent_answers, limit, allowed_count)
    unsent = UnsentAnswers(1)
    answer = UnreadAnswer([segment.batches(), segment.batches()], unsent)
    rest = answer.begin(ends[0].fileno())

    assert not answer.wait(ends[0].fileno(), lambda _: None)

    assert unsent.held_file_count == 0
    taken_bytes = len(CONTENT) - len(rest[0])
    assert await take(ends[1], taken_bytes) + rest[0].read() == CONTENT
    assert rest[1].read() == CONTENT


@in_a_loop
async def test_answers_of_other_clients_leave_fewer_files(
    ends: Ends, segment: Segment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unsent_answers, "HELD_FILES_MAX", 2)
    unsent = UnsentAnswers(1)
    first = UnreadAnswer([segment.batches(), segment.batches()], unsent)
    first.begin(ends[0].fileno())
    assert first.wait(ends[0].fileno(), lambda _: None)
    second = UnreadAnswer([segment.batches()], unsent)
    assert not second.wait(ends[0].fileno(), lambda _: None)
    first.drop()
    assert second.wait(ends[0].fileno(), lambda _: None)
    second.drop()
    assert unsent.held_file_count == 0


@in_a_loop
async def test_what_has_been_read_already_counts_as_waiting_in_memory_while_any_of_it_is_kept(
    ends: Ends, segment: Segment
) -> None:
    answer = UnreadAnswer([CONTENT, segment.batches(), b"tail"], UnsentAnswers(1))
    rest = answer.begin(ends[0].fileno())
    assert answer.wait(ends[0].fileno(), lambda _: None)
    assert len(rest[0]) < len(CONTENT)
    assert answer.read_bytes == len(CONTENT) + len(b"tail")
    assert answer.newly_sent_bytes() == 0

    await take(ends[1], len(CONTENT) + 1_000_000)
    assert answer.read_bytes == len(b"tail")
    assert answer.newly_sent_bytes() >= 1_000_000
    assert answer.newly_sent_bytes() == 0
    assert answer.file_count == 1
    answer.drop()
    assert answer.file_count == 0


@pytest.mark.parametrize("allowed_count", [0, 1])
@in_a_loop
async def test_a_system_that_opens_no_more_files_has_nothing_wait_in_them(
    ends: Ends, segment: Segment, monkeypatch: pytest.MonkeyPatch, allowed_count: int
) -> None:
    allowed = [os.dup] * allowed_count

    def refuse(file: int) -> int:
        if allowed:
            return allowed.pop()(file)
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "dup", refuse)
    waiting = Waiting(segment.batches(), ends[0])

    assert not waiting.is_waiting
    assert waiting.unsent.held_file_count == 0
    assert CONTENT.endswith(waiting.rest[0].read()), "what is left can be read all the same"


@in_a_loop
async def test_what_is_read_already_does_not_wait_in_a_file(ends: Ends) -> None:
    answer = UnreadAnswer([CONTENT], UnsentAnswers(1))
    assert answer.begin(ends[0].fileno())
    assert not answer.wait(ends[0].fileno(), lambda _: None)


@in_a_loop
async def test_an_answer_that_is_dropped_sends_no_more_and_may_be_dropped_again(
    ends: Ends, segment: Segment, open_file_count: Callable[[], int]
) -> None:
    ours, theirs = ends
    before = open_file_count()
    waiting = Waiting(segment.batches(), ours)
    waiting.answer.drop()
    waiting.answer.drop()

    assert open_file_count() == before
    assert waiting.unsent.held_file_count == 0
    sent = await take(theirs, 4 + len(CONTENT) - len(waiting.rest[0]))
    assert (b"head" + CONTENT).startswith(sent)
    with pytest.raises(BlockingIOError):
        theirs.recv(1)
