"""How much of the journal is still needed, and where.

Counted by groups of 64 batches, which is little to keep even where a million batches hold one message each.
When the journal's oldest segment is to go, groups in which nothing is needed are not even read.
"""

from __future__ import annotations

from typing import Final

GROUP_BITS: Final = 6


class Needed:
    """Counts by group. Belongs to the event loop's thread."""

    __slots__ = ("_counts", "_declared", "live_bytes")

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._declared: set[int] = set()
        self.live_bytes = 0
        """About how many bytes are needed, those of messages in several queues in parts."""

    def added(self, offset: int, count: int, size_bytes: int) -> None:
        """Note that a batch holds a message of so many queues."""
        group = offset >> GROUP_BITS
        self._counts[group] = self._counts.get(group, 0) + count
        self.live_bytes += size_bytes

    def removed(self, offset: int, size_bytes: int) -> None:
        """Note that one queue no longer needs a message."""
        group = offset >> GROUP_BITS
        count = self._counts[group] - 1
        if count:
            self._counts[group] = count
        else:
            del self._counts[group]
        self.live_bytes -= size_bytes

    def moved(self, offset: int, to_offset: int) -> None:
        """Note that a message of one queue lies elsewhere now."""
        self.removed(offset, 0)
        self.added(to_offset, 1, 0)

    def declared(self, offset: int) -> None:
        """Note that a batch says what is declared, or a horizon."""
        self._declared.add(offset >> GROUP_BITS)

    def has_declarations(self, offset: int) -> bool:
        """Whether any batch of this one's group does."""
        return offset >> GROUP_BITS in self._declared

    def next_offset(self, offset: int, end_offset: int) -> int:
        """The first offset from this one on in whose group anything is needed; the end if there is none."""
        while offset < end_offset:
            group = offset >> GROUP_BITS
            if group in self._counts or group in self._declared:
                return offset
            offset = (group + 1) << GROUP_BITS
        return end_offset

    def forget_below(self, offset: int) -> None:
        """Note that what lies below an offset is gone."""
        first = offset >> GROUP_BITS
        self._declared = {group for group in self._declared if group >= first}
