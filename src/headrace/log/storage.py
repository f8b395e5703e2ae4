"""What the partitions of a store share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.config import DAY_MS, MIB
from headrace.log.stored_batches import Lending

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.log.disk import Disk
    from headrace.log.failure import FailStop
    from headrace.log.open_files import OpenFiles
    from headrace.log.partition import PartitionLog


def _nobody(_: PartitionLog) -> None:
    """Where nobody makes checkpoints while a log is open, one is made when it is closed."""


@dataclass(slots=True, kw_only=True)
class Storage:
    """The disk, its failures, and what is done the same way for all partitions."""

    disk: Disk
    files: OpenFiles
    fail_stop: FailStop
    producer_expiration_ms: int = DAY_MS
    checkpoint_bytes: int = 32 * MIB
    lending: Lending = field(default_factory=Lending)
    on_checkpoint_due: Callable[[PartitionLog], None] = _nobody
    """Called by the thread that appends; has `PartitionLog.checkpoint` called by another."""
