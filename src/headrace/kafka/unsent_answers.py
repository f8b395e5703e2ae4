"""How many bytes of answers wait for clients to take them, over all connections.

What a client's socket does not take at once waits in memory. A connection whose client does not read starts
nothing more, so it holds few answers; but an answer to a fetch may have many megabytes, and there may be many
such clients. So a fetch starts only while there is room, and is answered with no more than there is room for;
but with one whole batch at least, or a consumer could never get past a large one.

Most large answers don't wait in memory but in the files that they lie in (see unread_answer.py), of which
there are only so many, too. A file that is held keeps its space on the disk, whatever is deleted.

If that were all, clients that never read could keep everybody else from reading. So a connection that takes
its answers too slowly, while others wait for room or half of the files are held, has to make way: it is
closed (see `ClientConnection.close_if_late`). That goes for those only that hold at least an equal share of
what is held: a client that is slow and holds little would make room for nobody. The one that holds most is
among them.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from headrace.kafka.budget import Pace

if TYPE_CHECKING:
    from collections.abc import Callable

logger: Final = logging.getLogger(__name__)

HELD_FILES_MAX: Final = 256
"""Over all connections. What would need more waits in memory."""
HELD_FILES_PER_ANSWER_MAX: Final = 64
"""As many megabytes are what clients ask for at once, and they ask for one of each partition."""


class UnsentAnswers:
    """Those of all connections. Belongs to the event loop's thread."""

    def __init__(self, size_bytes_max: int) -> None:
        self._size_bytes_max = size_bytes_max
        self._waiting: dict[Callable[[], None], None] = {}
        self.size_bytes = 0
        self.holder_count = 0
        """How many connections have answers that wait."""
        self.held_file_count = 0
        """How many files are kept open for answers that wait there."""
        self.file_holder_count = 0
        """How many connections have such answers."""

    @property
    def room_bytes(self) -> int:
        """How many more may wait."""
        return max(self._size_bytes_max - self.size_bytes, 0)

    @property
    def is_short(self) -> bool:
        """Whether somebody waits for room."""
        return bool(self._waiting)

    @property
    def are_files_scarce(self) -> bool:
        """Whether so many files are held that slow clients have to make way."""
        return self.held_file_count > HELD_FILES_MAX // 2

    def may_hold_file(self, already_held_count: int) -> bool:
        """Whether an answer that holds so many files may hold one more."""
        return already_held_count < HELD_FILES_PER_ANSWER_MAX and self.held_file_count < HELD_FILES_MAX

    def has_room(self, when_there_is_room: Callable[[], None]) -> bool:
        """Whether an answer may be made; if not, call back once there may be room, however often asked."""
        if self.room_bytes:
            return True
        self._waiting[when_there_is_room] = None
        return False

    def forget(self, when_there_is_room: Callable[[], None]) -> None:
        """Don't call back. Harmless when nobody would."""
        self._waiting.pop(when_there_is_room, None)

    def change(self, by_bytes: int) -> None:
        """Note that more or less wait now; if less, let those who wait for room try again."""
        self.size_bytes += by_bytes
        if by_bytes < 0 and self._waiting and self.room_bytes:
            waiting, self._waiting = self._waiting, {}
            for try_again in waiting:
                try:
                    try_again()
                except Exception:
                    # A mistake of ours in one must not keep the others waiting.
                    logger.exception("what waited for room failed in an unexpected way")


class Backlog:
    """Those of one connection. Belongs to the event loop's thread."""

    __slots__ = ("_all", "_pace", "_taken_bytes", "file_count", "size_bytes")

    def __init__(self, unsent: UnsentAnswers) -> None:
        self._all = unsent
        self._pace = Pace()
        self._taken_bytes = 0
        self.size_bytes = 0
        self.file_count = 0

    def note_files(self, file_count: int, sent_bytes: int = 0) -> None:
        """Note how many files wait for the client now, and what it has taken from files since last noted."""
        self._all.file_holder_count += bool(file_count) - bool(self.file_count)
        self.file_count = file_count
        self._taken_bytes += sent_bytes

    def note(self, size_bytes: int) -> bool:
        """Note how much waits now; say whether the client has taken something."""
        self._all.holder_count += bool(size_bytes) - bool(self.size_bytes)
        by_bytes, self.size_bytes = size_bytes - self.size_bytes, size_bytes
        self._taken_bytes -= min(by_bytes, 0)
        if by_bytes:
            self._all.change(by_bytes)
        return by_bytes < 0

    def is_too_slow(self, now_s: float) -> bool:
        """Whether the client takes its answers too slowly while others need its share of what is held."""
        keeps_room = self.size_bytes > 0 and self._all.is_short
        keeps_files = self.file_count > 0 and self._all.are_files_scarce
        if not keeps_room and not keeps_files:
            self._pace.reset()
            return False
        # Measured in any case, so that clients can't take turns in holding little.
        if not self._pace.is_too_slow(self._taken_bytes, now_s):
            return False
        has_its_room = self.size_bytes * self._all.holder_count >= self._all.size_bytes
        has_its_files = self.file_count * self._all.file_holder_count >= self._all.held_file_count
        return (keeps_room and has_its_room) or (keeps_files and has_its_files)
