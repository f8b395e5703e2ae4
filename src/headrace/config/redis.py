"""The embedded Redis: where it keeps its data, and how it is reached."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from headrace.config.address import Address
from headrace.config.broker import Durability
from headrace.config.checks import require
from headrace.config.environment import default_data_dir, default_redis_program


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisConfig:
    """The embedded Redis: where it keeps its data, and how it is reached."""

    data_dir: Path = field(default_factory=default_data_dir)
    """Its data is kept below it, in `redis`."""
    listen: Address | None = None
    """Where it listens, on loopback only; None: on a socket in a directory of its own."""
    program: Path | None = field(default_factory=default_redis_program)
    """The program `redis-server`, 6.2 or newer; None: that of the wheel, else the system's own."""
    durability: Durability = "sync"
    """sync: answered means on disk. os: in the page cache, for tests."""
    start_s_max: float = 120.0
    """How long a start may take; it first reads its data."""
    stop_s_max: float = 30.0
    """How long it may take to stop in good order; then it is killed."""

    def __post_init__(self) -> None:
        require(
            self.listen is None or self.listen.is_loopback,
            f"refusing to let the embedded Redis listen on {self.listen}: it is for this machine only. "
            "Use 127.0.0.1, or run a Redis of your own and name it by its URL",
        )
        require(self.start_s_max > 0, "start_s_max must be more than 0")
        require(self.stop_s_max > 0, "stop_s_max must be more than 0")
