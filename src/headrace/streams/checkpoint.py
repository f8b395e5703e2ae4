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


def clear_unfinished_writes(checkpoint: Path) -> None:
    """Remove the temporary files that a killed or stopped query left in its logs of offsets and commits.

    Spark writes `.<batch>.<uuid>.tmp`, then renames it. One that is left over from batch 0 keeps the query
    from starting in real-time mode: its checkpoint is neither empty nor has it a batch to go on from. The
    caller holds the query's lock, so nobody is writing one now.
    """
    for log in ("offsets", "commits"):
        for pattern in (".*.tmp", "..*.tmp.crc"):
            for left_over in (checkpoint / log).glob(pattern):
                left_over.unlink(missing_ok=True)


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
