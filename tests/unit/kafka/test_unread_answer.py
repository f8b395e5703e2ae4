"""Answers that the system takes at once, and what is left of them."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from headrace.kafka.unread_answer import hand_over


class Stored:
    """Bytes that would lie in a file; of one call, the socket takes so many."""

    def __init__(self, content: bytes, taken_bytes: int) -> None:
        self.content = content
        self._taken_bytes = taken_bytes

    def __len__(self) -> int:
        return len(self.content)

    def send(self, target: int) -> int:
        return os.write(target, self.content[: self._taken_bytes])

    def after(self, size_bytes: int) -> Stored:
        return Stored(self.content[size_bytes:], self._taken_bytes)


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        yield ours, theirs


def test_parts_go_out_in_their_order_and_nothing_is_left(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends

    assert hand_over([b"head", Stored(b"batches", 7), b"tail"], ours.fileno()) == []

    assert theirs.recv(100) == b"headbatchestail"


def test_behind_a_part_that_is_not_taken_as_a_whole_nothing_is_sent(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = ends

    left = hand_over([b"head", Stored(b"batches", 3), b"tail"], ours.fileno())

    assert theirs.recv(100) == b"headbat"
    rest, tail = left
    assert (rest.content, tail) == (b"ches", b"tail")


def test_bytes_that_are_not_taken_as_a_whole_are_left(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    large = bytes(range(256)) * 40_000

    rest, tail = hand_over([large, b"tail"], ours.fileno())

    taken = b""
    while len(taken) < len(large) - len(rest):
        taken += theirs.recv(len(large))
    assert taken + rest == large
    assert tail == b"tail"


def test_a_client_that_is_gone_leaves_all(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    theirs.close()

    assert hand_over([b"head", b"tail"], ours.fileno()) == [b"head", b"tail"]
