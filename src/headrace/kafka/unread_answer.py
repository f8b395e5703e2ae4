"""An answer with batches that lie in the log: they go from their files to the client's socket without us.

What the socket does not take at once waits in its files, not in memory, until the client has made room. So a
client that does not read costs a few open files, and neither retention nor compaction nor the deletion of a
topic wait for it; a file that is removed meanwhile takes its space on the disk for as long. What has been
read already, because it was little or had to be checked, waits in memory, and counts there unless it is less
than a piece that would be sent at once.

    begin      sends what the socket takes, up to what may go in one turn of the event loop
                                                  -> sent, or
    waiting    the files are held; whenever the socket takes more, more is sent
                                                  -> sent, or
    given up   more files than may be held (see unsent_answers.py), or the socket takes nothing though it
               has room: a file that can't be read, or a client that is gone. The rest is handed back, to be
               read and written as any other answer: whoever does that meets what is wrong, and knows what
               to do.

Nothing else may be written to the socket until it has ended. While it waits it has a handle of the socket of
its own: the number of one that the transport has closed may be another client's by now.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from headrace.config import MIB
from headrace.kafka.codec.frame import is_read

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.kafka.codec.writer import Parts
    from headrace.kafka.unsent_answers import UnsentAnswers
    from headrace.log.stored_batches import StoredBatches

TURN_BYTES_MAX: Final = 4 * MIB
"""What a client gets before others have their turn: one that reads as fast as the disk would never let go."""


class UnreadAnswer:
    """One answer on its way. Belongs to the thread of a running event loop."""

    def __init__(self, parts: Parts, unsent: UnsentAnswers) -> None:
        self._parts = parts
        self._unsent = unsent
        self._held: list[StoredBatches] = []
        self._socket = -1
        self._on_end: Callable[[Parts], None] | None = None
        self._loop = asyncio.get_running_loop()
        self._asked_bytes = 0
        self.taken_s = self._loop.time()
        """When the client has last taken something."""

    @property
    def read_bytes(self) -> int:
        """How much memory is kept by what is left."""
        return sum(_kept_bytes(part) for part in self._parts if is_read(part))

    @property
    def file_count(self) -> int:
        """How many files are held."""
        return len(self._held)

    def newly_sent_bytes(self) -> int:
        """How much has gone out of files since this was last asked."""
        left_bytes = sum(len(part) for part in self._parts if not is_read(part))
        sent_bytes, self._asked_bytes = self._asked_bytes - left_bytes, left_bytes
        return sent_bytes

    def begin(self, socket: int) -> Parts:
        """Send what a socket that never waits takes at once; returns what is left."""
        self._parts = hand_over(self._parts, socket)
        return self._parts

    def wait(self, socket: int, on_end: Callable[[Parts], None]) -> bool:
        """Send what is left as the socket takes it, if its files can be held; say whether they are.

        At the end, calls back with what has to be sent in another way, which is nothing when all went well.
        """
        self._on_end = on_end
        try:
            if not self._hold():
                return False
            self._socket = os.dup(socket)
            self._loop.add_writer(self._socket, self._go_on)
        except OSError:
            self.drop()
            return False
        except BaseException:
            self.drop()
            raise
        return True

    def drop(self) -> None:
        """Send no more, and let go of the files. Harmless when nothing is held any more."""
        self._stop_watching()
        while self._held:
            held = self._held.pop()
            self._unsent.held_file_count -= 1
            held.let_go()

    def _hold(self) -> bool:
        """Hold the files of all that is left, if there are any and so many may be; say whether."""
        if all(map(is_read, self._parts)):
            return False
        parts: Parts = []
        for part in self._parts:
            if is_read(part):
                parts.append(part)
                continue
            if not self._unsent.may_hold_file(len(self._held)):
                self.drop()
                return False
            held = part.hold()
            self._held.append(held)
            self._unsent.held_file_count += 1
            parts.append(held)
        self._parts = parts
        self.newly_sent_bytes()
        return True

    def _go_on(self) -> None:
        before = self._parts
        self._parts = hand_over(before, self._socket)
        has_moved = not self._parts or len(self._parts) < len(before) or len(self._parts[0]) < len(before[0])
        if self._parts and has_moved:
            self.taken_s = self._loop.time()
            return
        assert self._on_end is not None
        self._stop_watching()
        if not self._parts:
            # What comes next on the connection may need as many files.
            self.drop()
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
    """Send what a socket that never waits takes at once, and may in one turn; returns what is left."""
    room_bytes = TURN_BYTES_MAX
    for index, part in enumerate(parts):
        sent_bytes = _write(socket, part) if is_read(part) else part.send(socket, room_bytes)
        room_bytes = max(room_bytes - sent_bytes, 0)
        if sent_bytes < len(part):
            # Many megabytes may go out by a tenth of one at a time: they are not copied each time.
            rest = memoryview(part)[sent_bytes:] if is_read(part) else part.after(sent_bytes)
            return [rest, *parts[index + 1 :]]
    return []


def _write(socket: int, part: bytes | memoryview) -> int:
    with suppress(OSError):
        return os.write(socket, part)
    return 0


def _kept_bytes(part: bytes | memoryview) -> int:
    # A view of the end keeps all of it.
    return len(part) if isinstance(part, bytes) else memoryview(part.obj).nbytes
