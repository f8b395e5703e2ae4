"""How work queues are served."""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.config.address import Address
from headrace.config.checks import require
from headrace.config.units import KIB, MIB

FRAME_BYTES_MIN = 4 * KIB
"""What AMQP asks of everybody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueConfig:
    """How work queues are served to clients of AMQP 0-9-1, beside the log and with the same users and TLS."""

    listen: Address = field(default_factory=lambda: Address("127.0.0.1", 5672))
    """Where clients of AMQP connect. Anything but loopback needs users or client certificates, and TLS."""
    virtual_hosts: tuple[str, ...] = ("/",)
    """The virtual hosts that there are. Each has exchanges and queues of its own."""
    heartbeat_s: int = 60
    """How often a client is to be heard of; it may ask for another number. After two without it is let go."""
    frame_bytes_max: int = 128 * KIB
    """The largest frame (frame_max). Larger messages come in several."""
    channel_count_max: int = 2_047
    """The most channels of a connection (channel_max)."""
    message_bytes_max: int = 16 * MIB
    """A larger message is refused with PRECONDITION_FAILED, before its body is read."""
    journal_segment_bytes: int = 32 * MIB
    """How large a file of the journal gets; space on disk is given back by the file."""

    def __post_init__(self) -> None:
        require(bool(self.virtual_hosts), "virtual_hosts is empty: name at least one, such as /")
        require(all(self.virtual_hosts), "a virtual host needs a name, such as /")
        require(0 <= self.heartbeat_s <= 65_535, "heartbeat_s must be 0 (none) to 65535")
        require(
            FRAME_BYTES_MIN <= self.frame_bytes_max <= 16 * MIB,
            f"frame_bytes_max must be {FRAME_BYTES_MIN} to {16 * MIB}",
        )
        require(1 <= self.channel_count_max <= 65_535, "channel_count_max must be 1 to 65535")
        require(1 <= self.message_bytes_max <= 512 * MIB, f"message_bytes_max must be 1 to {512 * MIB}")
        require(
            16 * KIB <= self.journal_segment_bytes <= 1024 * MIB,
            f"journal_segment_bytes must be {16 * KIB} to {1024 * MIB}",
        )
