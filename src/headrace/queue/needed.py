"""How much of the journal is still needed, and where.

Each place of a message in a queue counts for the bytes that were written of it; where several queues share a
message, each for its part. A place keeps that number as long as it waits, in eight bits: rounded down, by an
eighth at most. When only some of the queues still have a message, too little is counted for it, until it is
written again.

Where something is needed is known by groups of 64 batches, which is little to keep even where a million
batches hold one message each. When the journal's oldest segment is to go, groups in which nothing is needed
are not even read.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

GROUP_BITS: Final = 6
MANTISSA_BITS: Final = 3
SIZE_CLASS_MAX: Final = 255
SIZES_MAX: Final = 4096
"""How many sizes are remembered with what they count for: most messages are as long as others."""


def size_class(size_bytes: int) -> int:
    """A number of bytes in eight bits: exact below 16, and rounded down to four digits in binary above."""
    exponent = size_bytes.bit_length() - MANTISSA_BITS
    if exponent <= 0:
        return size_bytes
    return min(exponent << MANTISSA_BITS | (size_bytes >> (exponent - 1)) & 7, SIZE_CLASS_MAX)


def _class_bytes(size: int) -> int:
    exponent, mantissa = size >> MANTISSA_BITS, size & 7
    return (8 | mantissa) << (exponent - 1) if exponent else mantissa


CLASS_BYTES: Final = tuple(map(_class_bytes, range(SIZE_CLASS_MAX + 1)))
"""How many bytes a class counts for."""


@lru_cache(SIZES_MAX)
def counted_bytes(size_bytes: int) -> int:
    """How much a place counts for of which so many bytes were written."""
    return CLASS_BYTES[size_class(size_bytes)]


class Needed:
    """Counts by group. Belongs to the event loop's thread."""

    __slots__ = ("_declared", "_groups", "live_bytes")

    def __init__(self) -> None:
        self._groups: dict[int, int] = {}
        self._declared: set[int] = set()
        self.live_bytes = 0
        """How many bytes are needed."""

    def added(self, offset: int, count: int, size_bytes: int) -> None:
        """Note that a batch holds a message in so many places, each of which counts for so many bytes."""
        group = offset >> GROUP_BITS
        self._groups[group] = self._groups.get(group, 0) + count
        self.live_bytes += count * size_bytes

    def removed(self, offset: int, size_bytes: int) -> None:
        """Note that a place no longer needs its message."""
        group = offset >> GROUP_BITS
        count = self._groups[group] - 1
        if count:
            self._groups[group] = count
        else:
            del self._groups[group]
        self.live_bytes -= size_bytes

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
