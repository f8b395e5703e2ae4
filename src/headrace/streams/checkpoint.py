"""Where queries keep how far they have come, and the lock that keeps two drivers off one checkpoint.

DATA/checkpoints/<query>/        Spark's own
DATA/checkpoints/<query>.json    the cluster and the topics that its offsets belong to (see origin.py)
DATA/checkpoints/<query>.lock    held while the query runs; the kernel lets go of it when its holder dies
"""

from __future__ import annotations

import fcntl
from contextlib import ExitStack
from pathlib import Path

from headrace.config import StreamsConfig
from headrace.errors import DataDirectoryInUse


def checkpoint_path(config: StreamsConfig, query: str) -> Path:
    """The query's checkpoint directory, absolute: Spark may resolve a relative one elsewhere."""
    return config.checkpoints_dir.absolute() / query


def lock_checkpoint(config: StreamsConfig, query: str, held: ExitStack) -> None:
    """Hold the query's lock for as long as `held` is open; raise if another process holds it."""
    if not try_lock_checkpoint(config, query, held):
        raise DataDirectoryInUse(
            f"{query} is running already on its checkpoint in {config.checkpoints_dir}: stop that one first, "
            "or run this one with another --data"
        )


def try_lock_checkpoint(config: StreamsConfig, query: str, held: ExitStack) -> bool:
    """Hold the query's lock for as long as `held` is open; say whether it could be had."""
    config.checkpoints_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = (config.checkpoints_dir / f"{query}.lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return False
    held.enter_context(lock)
    return True
