"""How far a topic was handed over to a queue: the next offset of each partition. No I/O."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headrace.errors import BridgeFailed
from headrace.queue_clients.bridge.records import TopicRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """The next offset of each partition of a topic that is to be handed over."""

    topic: str
    offsets: Mapping[int, int] = field(default_factory=dict)

    def after(self, records: Sequence[TopicRecord]) -> Position:
        """The position behind these records."""
        offsets = dict(self.offsets)
        for record in records:
            offsets[record.partition] = max(offsets.get(record.partition, 0), record.offset + 1)
        return Position(topic=self.topic, offsets=offsets)

    def further(self, other: Position) -> Position:
        """The further of two offsets for each partition: what was handed over stays so."""
        offsets = dict(self.offsets)
        for number, offset in other.offsets.items():
            offsets[number] = max(offset, offsets.get(number, 0))
        return Position(topic=self.topic, offsets=offsets)

    def to_json(self) -> bytes:
        """What the position's message holds."""
        offsets = {str(number): self.offsets[number] for number in sorted(self.offsets)}
        return json.dumps({"topic": self.topic, "offsets": offsets}).encode()

    @classmethod
    def from_json(cls, text: bytes, *, topic: str, queue: str) -> Position:
        """Read a position of this topic."""
        try:
            content = json.loads(text)
            position = cls(
                topic=str(content["topic"]),
                offsets={int(number): int(offset) for number, offset in content["offsets"].items()},
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BridgeFailed(
                f"queue {queue} holds what is no position of a bridge ({text[:60]!r}): let nobody else "
                "publish to it"
            ) from error
        if position.topic != topic:
            raise BridgeFailed(
                f"the bridge has handed over topic {position.topic} so far, not {topic}: give the new bridge "
                f"a name of its own, or delete queue {queue} to begin anew"
            )
        return position
