"""How much of the journal is still needed, and where.

Counted by groups of 64 batches, which is little to keep even where a million batches hold one message each.
When the journal's oldest segment is to go, groups in which nothing is needed are not even read.
"""

from __future__ import annotations

from typing import Final

GROUP_BITS: Final = 6


class Needed:
    """Counts by group. Belongs to the event loop's thread."""

    __slots__ = ("_declared", "_groups", "live_bytes")

    def __init__(self) -> None:
        self._groups: dict[int, list[int]] = {}
        self._declared: set[int] = set()
        self.live_bytes = 0
        """How many bytes are needed; messages of a group count as if they were all of one size."""

    def added(self, offset: int, count: int, size_bytes: int) -> None:
        """Note that a batch holds a message of so many queues."""
        group = self._groups.get(offset >> GROUP_BITS)
        if group is None:
            self._groups[offset >> GROUP_BITS] = [count, size_bytes]
        else:
            group[0] += count
            group[1] += size_bytes
        self.live_bytes += size_bytes

    def removed(self, offset: int) -> int:
        """Note that one queue no longer needs a message; return how many bytes that counts for."""
        group = self._groups[offset >> GROUP_BITS]
        share = group[1] // group[0]
        group[0] -= 1
        group[1] -= share
        if not group[0]:
            share += group[1]
            del self._groups[offset >> GROUP_BITS]
        self.live_bytes -= share
        return share

    def moved(self, offset: int, to_offset: int) -> None:
        """Note that a message of one queue lies elsewhere now."""
        self.added(to_offset, 1, self.removed(offset))

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
            if group in self._groups or group in self._declared:
                return offset
            offset = (group + 1) << GROUP_BITS
        return end_offset

    def has_messages(self, offset: int, end_offset: int) -> bool:
        """Whether a message is needed, from an offset's group on and before that of another."""
        return any(group in self._groups for group in range(offset >> GROUP_BITS, end_offset >> GROUP_BITS))

    def forget_below(self, offset: int) -> None:
        """Note that what lies below an offset is gone."""
        first = offset >> GROUP_BITS
        self._declared = {group for group in self._declared if group >= first}
