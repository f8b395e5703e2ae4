"""What a member of a classic consumer group says about itself: Kafka's ConsumerProtocolSubscription.

    version i16, topics: count i32, then each as length i16 and bytes; what follows differs by version

Other protocols ("connect", say) have metadata of their own, which only they understand.
"""

from __future__ import annotations

from struct import Struct
from struct import error as struct_error
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headrace.kafka.groups.state import Group

CONSUMER_PROTOCOL: Final = "consumer"

_HEAD: Final = Struct(">hi")
_LENGTH: Final = Struct(">h")


def is_subscribed(group: Group, topic: str) -> bool:
    """Whether any member wants the topic. One whose metadata can't be understood may want any."""
    subscriptions = (read_topics(each.metadata_for(group.protocol_name)) for each in group.members.values())
    return any(topics is None or topic in topics for topics in subscriptions)


def read_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics that a member subscribes to, or None if its metadata can't be understood."""
    try:
        _, count = _HEAD.unpack_from(metadata)
        position = _HEAD.size
        topics = []
        for _ in range(count):
            start = position + _LENGTH.size
            position = start + _LENGTH.unpack_from(metadata, position)[0]
            if not start <= position <= len(metadata):
                return None
            topics.append(metadata[start:position].decode())
    except (struct_error, UnicodeDecodeError):
        return None
    return frozenset(topics)
