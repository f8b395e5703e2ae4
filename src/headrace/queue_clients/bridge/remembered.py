"""The ids of what was handed over lately, in bounded space. No I/O.

Each batch that is handed over gets the next number and writes one record to the journal, a compacted
topic: the key is the number's slot, `number % slot_count`, and the value says number and ids. So the
journal holds the last `slot_count` batches and never more, however long a bridge runs or stands still.
Reading it all gives back what is known.

Ids are kept as digests of 12 bytes: two different ids have the same with a chance of 1 in 10^28.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from headrace.errors import BridgeFailed

DIGEST_BYTES: Final = 12


def digest_of(message_id: str) -> str:
    """What stands for an id."""
    return hashlib.blake2b(message_id.encode(errors="surrogateescape"), digest_size=DIGEST_BYTES).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedOver:
    """One batch, as the journal tells it."""

    number: int
    digests: tuple[str, ...]

    def value(self) -> bytes:
        """What is written."""
        return json.dumps({"batch": self.number, "ids": self.digests}).encode()

    @classmethod
    def read(cls, value: bytes, topic: str) -> HandedOver:
        """What was written."""
        try:
            content = json.loads(value)
            return cls(number=int(content["batch"]), digests=tuple(map(str, content["ids"])))
        except (ValueError, KeyError, TypeError) as error:
            raise BridgeFailed(
                f"topic {topic} holds what is no journal of a bridge: let nobody else write to it"
            ) from error


class Remembered:
    """What was handed over in the last batches. Belongs to one thread."""

    def __init__(self, slot_count: int) -> None:
        self._slot_count = slot_count
        self._batches: dict[int, HandedOver] = {}
        self._last_batch_of: dict[str, int] = {}
        self._next_number = 0

    def __contains__(self, message_id: str) -> bool:
        return digest_of(message_id) in self._last_batch_of

    def next_batch(self, message_ids: Sequence[str]) -> HandedOver:
        """What to write for a batch that is about to be handed over. Nothing is remembered yet."""
        return HandedOver(number=self._next_number, digests=tuple(map(digest_of, message_ids)))

    def key_of(self, batch: HandedOver) -> bytes:
        """The key of its record."""
        return str(batch.number % self._slot_count).encode()

    def add(self, batch: HandedOver) -> None:
        """Remember a batch that was handed over, and forget the one whose slot it takes."""
        oldest = batch.number - self._slot_count
        if oldest in self._batches:
            for digest in self._batches.pop(oldest).digests:
                if self._last_batch_of.get(digest) == oldest:
                    del self._last_batch_of[digest]
        self._batches[batch.number] = batch
        for digest in batch.digests:
            self._last_batch_of[digest] = max(batch.number, self._last_batch_of.get(digest, 0))
        self._next_number = max(self._next_number, batch.number + 1)

    @classmethod
    def of(cls, batches: Sequence[HandedOver], slot_count: int) -> Remembered:
        """What a journal tells, in whatever order, written with whatever number of slots."""
        remembered = cls(slot_count)
        for batch in sorted(batches, key=lambda each: each.number):
            remembered.add(batch)
        return remembered
