"""The messages of a queue that are ready, in their order.

    head    the next ones, as entries: a few always, many while all queues together keep few (see memory.py)
    tail    all the others, packed: four numbers of 64 bits each

To pack a message and to read it again costs a fifth of what is done for it, so that a queue whose consumers
are a little behind had better not begin with it. Those that came back are in the head in any case.

Bodies of what is in the tail lie in the journal, so that a million waiting messages cost 32 MB. All of the
head is before all of the tail: entries leave by the head's front, and one that comes back was in the head
once. So it finds its old place there, by its position.

A packed entry is: location, position, expiry, and a word of body size, priority, size in the journal
(rounded, see needed.py), delivery count and flags.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from typing import TYPE_CHECKING, Final

from headrace.queue.message import NOWHERE, Entry, Message
from headrace.queue.needed import CLASS_BYTES, SIZE_CLASS_MAX, size_class

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headrace.queue.work_queue import WorkQueue

CHUNK_COUNT_MAX: Final = 512
WORDS: Final = 4
"""Numbers of a packed entry."""
STORED: Final = 1
REDELIVERED: Final = 2
COUNT_SHIFT: Final = 2
COUNT_MAX: Final = (1 << 14) - 1
KEPT_SHIFT: Final = 16
PRIORITY_SHIFT: Final = 24
PRIORITY_MAX: Final = (1 << 8) - 1
SIZE_SHIFT: Final = 32


class Backlog:
    """One queue's ready messages of one priority."""

    __slots__ = (
        "_chunk_count_max",
        "_head_count_max",
        "_is_roomy",
        "_queue",
        "_tail",
        "body_bytes",
        "count",
        "head",
    )

    def __init__(
        self,
        queue: WorkQueue,
        *,
        head_count_max: int,
        chunk_count_max: int = CHUNK_COUNT_MAX,
        is_roomy: Callable[[], bool] = lambda: False,
    ) -> None:
        """Keep `head_count_max` as entries, and more than that as long as it `is_roomy`."""
        self._queue = queue
        self._is_roomy = is_roomy
        self._chunk_count_max = chunk_count_max
        self._head_count_max = head_count_max
        self.head: deque[Entry] = deque()
        self._tail: deque[array[int]] = deque()
        self.count = 0
        self.body_bytes = 0

    @property
    def is_paging(self) -> bool:
        """Whether the next entry to be added has to be in the journal, because it will be packed."""
        return bool(self._tail) or (len(self.head) >= self._head_count_max and not self._is_roomy())

    def append(self, entry: Entry) -> bool:
        """Add the newest; return whether it is kept as an entry. One that is in no journal always is."""
        self.count += 1
        self.body_bytes += entry.message.body_bytes
        if entry.message.location == NOWHERE or not self.is_paging:
            self.head.append(entry)
            return True
        self._pack(entry)
        return False

    def put_back(self, entry: Entry) -> None:
        """Put an entry where it was."""
        self.count += 1
        self.body_bytes += entry.message.body_bytes
        head = self.head
        if not head or entry.position < head[0].position:
            head.appendleft(entry)
            return
        head.insert(bisect_left(head, entry.position, key=_position), entry)

    def first(self) -> Entry | None:
        """The next one, which stays."""
        if not self.head:
            if not self._tail:
                return None
            self._page_in()
        return self.head[0]

    def pop_first(self) -> Entry:
        """The next one, which goes. There must be one."""
        if not self.head:
            self._page_in()
        entry = self.head.popleft()
        self.count -= 1
        self.body_bytes -= entry.message.body_bytes
        return entry

    def take_all(self) -> tuple[deque[Entry], deque[array[int]]]:
        """Take everything out: entries, and chunks of packed ones."""
        taken = self.head, self._tail
        self.head, self._tail = deque(), deque()
        self.count = self.body_bytes = 0
        return taken

    def place_of(self, position: int) -> tuple[int, int] | None:
        """Where the message of this position lies in the journal, and how often it came back.

        None if it does not wait here.
        """
        entry = self._entry(position)
        if entry is not None:
            return entry.message.location, entry.delivery_count
        found = self._find(position)
        if found is None:
            return None
        chunk, index = found
        return chunk[index], (chunk[index + 3] >> COUNT_SHIFT) & COUNT_MAX

    def relocate(self, position: int, location: int, kept_bytes: int) -> int | None:
        """Note where the message of this position lies now, and what counts for it.

        Return what counted for it until now; None if it is not here.
        """
        entry = self._entry(position)
        if entry is not None:
            return entry.relocate(location, kept_bytes)
        found = self._find(position)
        if found is None:
            return None
        chunk, index = found
        word = chunk[index + 3]
        chunk[index] = location
        chunk[index + 3] = word & ~(SIZE_CLASS_MAX << KEPT_SHIFT) | size_class(kept_bytes) << KEPT_SHIFT
        return CLASS_BYTES[(word >> KEPT_SHIFT) & SIZE_CLASS_MAX]

    def positions(self) -> Iterator[int]:
        """The positions of all that wait."""
        for entry in self.head:
            yield entry.position
        for chunk in self._tail:
            yield from chunk[1::WORDS]

    def last_redelivered(self) -> int:
        """The last position that is flagged as redelivered; -1 if none is."""
        for chunk in reversed(self._tail):
            for index in range(len(chunk) - WORDS, -1, -WORDS):
                if chunk[index + 3] & REDELIVERED:
                    return chunk[index + 1]
        return next((entry.position for entry in reversed(self.head) if entry.redelivered), -1)

    def recovered(self, location: int, position: int, expires_ms: int, word: int) -> None:
        """Add a packed entry that was found in the journal; those of a queue come in their order."""
        self.count += 1
        self.body_bytes += word >> SIZE_SHIFT
        self._add_packed(location, position, expires_ms, word)

    def _pack(self, entry: Entry) -> None:
        self._add_packed(entry.message.location, entry.position, entry.expires_ms, packed_word(entry))

    def _add_packed(self, location: int, position: int, expires_ms: int, word: int) -> None:
        if not self._tail or len(self._tail[-1]) >= self._chunk_count_max * WORDS:
            self._tail.append(array("q"))
        self._tail[-1].extend((location, position, expires_ms, word))

    def _page_in(self) -> None:
        chunk = self._tail.popleft()
        for index in range(0, len(chunk), WORDS):
            location, position, expires_ms, word = chunk[index : index + WORDS]
            message = Message("", "", b"", b"")
            message.body = None
            message.body_bytes = word >> SIZE_SHIFT
            message.location = location
            message.is_persistent = bool(word & STORED)
            message.priority = (word >> PRIORITY_SHIFT) & PRIORITY_MAX
            message.references = 1
            message.waits_for_disk = True
            entry = Entry(self._queue, message, position)
            entry.expires_ms = expires_ms
            entry.is_stored = bool(word & STORED)
            entry.redelivered = bool(word & REDELIVERED)
            entry.delivery_count = (word >> COUNT_SHIFT) & COUNT_MAX
            entry.kept_bytes = CLASS_BYTES[(word >> KEPT_SHIFT) & SIZE_CLASS_MAX]
            self.head.append(entry)

    def _entry(self, position: int) -> Entry | None:
        index = bisect_left(self.head, position, key=_position)
        if index < len(self.head) and self.head[index].position == position:
            return self.head[index]
        return None

    def _find(self, position: int) -> tuple[array[int], int] | None:
        which = bisect_right(self._tail, position, key=_first_position) - 1
        if which < 0:
            return None
        chunk = self._tail[which]
        low, high = 0, len(chunk) // WORDS
        while low < high:
            middle = (low + high) // 2
            if chunk[middle * WORDS + 1] < position:
                low = middle + 1
            else:
                high = middle
        index = low * WORDS
        return (chunk, index) if index < len(chunk) and chunk[index + 1] == position else None


def _position(entry: Entry) -> int:
    return entry.position


def _first_position(chunk: array[int]) -> int:
    return chunk[1]


def packed_places(chunk: array[int]) -> Iterator[tuple[int, int]]:
    """Of each packed entry: where it lies in the journal, and how many bytes count as needed for it."""
    for location, word in zip(chunk[::WORDS], chunk[3::WORDS], strict=True):
        yield location, CLASS_BYTES[(word >> KEPT_SHIFT) & SIZE_CLASS_MAX]


def packed_word(entry: Entry) -> int:
    """What a packed entry says beside its place and its expiry."""
    flags = (STORED if entry.is_stored else 0) | (REDELIVERED if entry.redelivered else 0)
    return (
        entry.message.body_bytes << SIZE_SHIFT
        | min(entry.message.priority, PRIORITY_MAX) << PRIORITY_SHIFT
        | size_class(entry.kept_bytes) << KEPT_SHIFT
        | min(entry.delivery_count, COUNT_MAX) << COUNT_SHIFT
        | flags
    )
