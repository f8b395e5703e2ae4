"""An answer with batches that lie in the log: they go from their files to the client's socket without us.

What the socket does not take at once waits in its files, not in memory, until the client has made room. So a
client that does not read costs a few open files, and neither retention nor compaction nor the deletion of a
topic wait for it; a file that is removed meanwhile takes its space on the disk for as long.

    begin      sends what the socket takes        -> sent, or
    waiting    the files are held; whenever the socket takes more, more is sent
                                                  -> sent, or
    given up   more files than may be held, or the socket takes nothing though it has room: a file that can't
               be read, or a client that is gone. The rest is handed back, to be read and written as any
               other answer: whoever does that meets what is wrong, and knows what to do.

Nothing else may be written to the socket until it has ended. While it waits it has a handle of the socket of
its own: the number of one that the transport has closed may be another client's by now.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from headrace.log.stored_batches import StoredBatches

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.kafka.codec.writer import Parts
    from headrace.kafka.unsent_answers import UnsentAnswers

HELD_FILES_MAX: Final = 256
"""Over all connections. What waits above it is read into memory, of which there is a limit, too."""


class UnreadAnswer:
    """One answer on its way. Belongs to the thread of a running event loop."""

    def __init__(self, parts: Parts, unsent: UnsentAnswers) -> None:
        self._parts = parts
        self._unsent = unsent
        self._held: list[StoredBatches] = []
        self._socket = -1
        self._on_end: Callable[[Parts], None] | None = None
        self._loop = asyncio.get_running_loop()
        self.taken_s = self._loop.time()
        """When the client has last taken something."""

    def begin(self, socket: int) -> Parts:
        """Send what a socket that never waits takes at once; returns what is left."""
        self._parts = hand_over(self._parts, socket)
        return self._parts

    def wait(self, socket: int, on_end: Callable[[Parts], None]) -> bool:
        """Send what is left as the socket takes it, if its files can be held; say whether they are.

        At the end, calls back with what has to be sent in another way, which is nothing when all went well.
        """
        if not self._hold():
            return False
        try:
            self._socket = os.dup(socket)
        except OSError:
            self.drop()
            return False
        self._on_end = on_end
        self._loop.add_writer(self._socket, self._go_on)
        return True

    def drop(self) -> None:
        """Send no more, and let go of the files. Harmless when nothing is held any more."""
        self._stop_watching()
        self._unsent.held_file_count -= len(self._held)
        for batches in self._held:
            batches.let_go()
        self._held.clear()

    def _hold(self) -> bool:
        """Hold the files of all that is left; say whether that could be."""
        unread = [part for part in self._parts if isinstance(part, StoredBatches)]
        if not unread or self._unsent.held_file_count + len(unread) > HELD_FILES_MAX:
            return False
        parts: Parts = []
        try:
            for part in self._parts:
                parts.append(self._held_part(part))
        except OSError:
            self.drop()
            return False
        self._parts = parts
        return True

    def _held_part(self, part: bytes | StoredBatches) -> bytes | StoredBatches:
        if isinstance(part, bytes):
            return part
        held = part.hold()
        self._held.append(held)
        self._unsent.held_file_count += 1
        return held

    def _go_on(self) -> None:
        before = self._parts
        self._parts = hand_over(before, self._socket)
        has_moved = not self._parts or len(self._parts) < len(before) or len(self._parts[0]) < len(before[0])
        if self._parts and has_moved:
            self.taken_s = self._loop.time()
            return
        assert self._on_end is not None
        self._stop_watching()
        try:
            self._on_end(self._parts)
        finally:
            self.drop()

    def _stop_watching(self) -> None:
        if self._socket >= 0:
            self._loop.remove_writer(self._socket)
            os.close(self._socket)
            self._socket = -1


def hand_over(parts: Parts, socket: int) -> Parts:
    """Send what a socket that never waits takes at once; returns what is left."""
    for index, part in enumerate(parts):
        sent_bytes = _write(socket, part) if isinstance(part, bytes) else part.send(socket)
        if sent_bytes < len(part):
            rest = part[sent_bytes:] if isinstance(part, bytes) else part.after(sent_bytes)
            return [rest, *parts[index + 1 :]]
    return []


def _write(socket: int, part: bytes) -> int:
    with suppress(OSError):
        return os.write(socket, part)
    return 0
