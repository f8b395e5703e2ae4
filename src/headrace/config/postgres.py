"""The embedded PostgreSQL: where it keeps its data, and how it is reached."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from headrace.config.address import Address
from headrace.config.broker import Durability
from headrace.config.checks import require
from headrace.config.environment import default_data_dir, default_postgres_programs
from headrace.config.units import GIB, MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresConfig:
    """The embedded PostgreSQL: where it keeps its data, and how it is reached."""

    data_dir: Path = field(default_factory=default_data_dir)
    """The database is kept below it, in `postgres`."""
    listen: Address | None = None
    """Where it listens, on loopback only; None: on a socket in a directory of its own."""
    programs_dir: Path | None = field(default_factory=default_postgres_programs)
    """Where PostgreSQL's programs are (`initdb`, `postgres`); None: of the wheel, else the system's own."""
    durability: Durability = "sync"
    """sync: committed means on disk. os: in the page cache, for tests."""
    slot_wal_bytes_max: int = 8 * GIB
    """How much a capture that does not run may keep the database from deleting, before its slot is lost."""
    start_s_max: float = 120.0
    """How long a start may take; after a crash the database first recovers."""
    stop_s_max: float = 30.0
    """How long it may take to stop in good order; then it is stopped as a crash would stop it."""

    def __post_init__(self) -> None:
        require(
            self.listen is None or self.listen.is_loopback,
            f"refusing to let the embedded PostgreSQL listen on {self.listen}: it is for this machine only. "
            "Use 127.0.0.1, or run a PostgreSQL of your own and name it by its DSN",
        )
        require(self.slot_wal_bytes_max >= 64 * MIB, "slot_wal_bytes_max must be at least 64 MiB")
        require(self.start_s_max > 0, "start_s_max must be more than 0")
        require(self.stop_s_max > 0, "stop_s_max must be more than 0")
