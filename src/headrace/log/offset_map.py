"""For each key, the offset of its last record, in a bounded amount of memory.

Short keys stand for themselves; of a longer one, 16 bytes of its BLAKE2b hash do. Two keys with the same hash
would count as one, which no chance and no known attack brings about. (Kafka uses MD5, for which attacks are
known.)
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

HASH_BYTES: Final = 16
ENTRY_BYTES: Final = 200
"""What an entry takes in memory: the key, the offset, their places in the dictionary while it grows."""
NO_OFFSET: Final = -1


class OffsetMap:
    """Last offsets by key. Used from one thread."""

    __slots__ = ("_count_max", "_offsets", "latest_offset")

    def __init__(self, memory_bytes_max: int) -> None:
        self._count_max = max(memory_bytes_max // ENTRY_BYTES, 1)
        self._offsets: dict[bytes, int] = {}
        self.latest_offset = NO_OFFSET
        """All records up to this offset have been seen."""

    def __len__(self) -> int:
        return len(self._offsets)

    def put(self, key: bytes, offset: int) -> bool:
        """Note a key's record; False when there is no room for another key. Offsets come in their order."""
        entry = _entry(key)
        if entry not in self._offsets and len(self._offsets) >= self._count_max:
            return False
        self._offsets[entry] = offset
        self.latest_offset = offset
        return True

    def is_last(self, key: bytes, offset: int) -> bool:
        """Whether no later record of the key has been seen."""
        return self._offsets.get(_entry(key), NO_OFFSET) <= offset


def _entry(key: bytes) -> bytes:
    return key if len(key) < HASH_BYTES else blake2b(key, digest_size=HASH_BYTES).digest()
