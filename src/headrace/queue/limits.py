"""How much of everything the broker takes. Each limit has a client error or an alarm behind it."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.config import MIB
from headrace.errors import ConfigError

NAME_BYTES_MAX = 255
"""AMQP's own limit: names and routing keys are short strings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLimits:
    """Limits of one broker."""

    vhosts: tuple[str, ...] = ("/",)
    """The names of the virtual hosts that there are."""
    queue_count_max: int = 20_000
    exchange_count_max: int = 20_000
    binding_count_max: int = 200_000
    consumer_count_max: int = 20_000
    message_bytes_max: int = 128 * MIB
    memory_bytes_max: int = 512 * MIB
    """Bodies that are kept in memory before publishers are blocked."""
    resident_bytes_max: int = 64 * MIB
    """Bodies of waiting messages that are also on disk are kept in memory up to this."""
    resident_count_max: int = 2048
    """Messages at the head of a queue that are kept in memory as they are; others may be packed."""
    resident_count_all_max: int = 32_768
    """No queue packs any as long as no more than this are kept as they are, in all queues."""
    disk_free_bytes_min: int = 50 * MIB
    """Publishers are blocked while less of the disk is free."""
    journal_segment_bytes: int = 32 * MIB
    """How large a file of the journal gets; space is given back by the file."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if isinstance(value, int) and value < 1:
                raise ConfigError(f"{name} is {value}; it must be at least 1")
        if not self.vhosts or not all(self.vhosts):
            raise ConfigError(f"vhosts are {self.vhosts}; name at least one, and none with an empty name")
