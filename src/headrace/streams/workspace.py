"""A directory for what Spark and Java need only while they run: unpacked libraries, spilled rows, open state.

    DATA/work/<random>/       of one process; .lock in it is held for as long as the process lives
    DATA/work/.lock           held while directories are made and cleared away

Spark would put all this below /tmp and clear it away when it ends, but not when it is killed: what a killed
process left is cleared away by the next.
"""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def workspace(data_dir: Path) -> Iterator[Path]:
    """An empty directory of one's own, gone afterwards."""
    root = data_dir.absolute() / "work"
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (root / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for path in root.iterdir():
            if path.is_dir() and _is_abandoned(path):
                _remove(path)
        own = Path(tempfile.mkdtemp(dir=root))
        own_lock = (own / ".lock").open("w")
        fcntl.flock(own_lock, fcntl.LOCK_EX)
    with own_lock:
        try:
            yield own
        finally:
            _remove(own)


def _remove(path: Path) -> None:
    """Remove it all. Spark's Python processes end a moment after Java, and remove sockets meanwhile."""
    while path.exists():
        with suppress(FileNotFoundError):
            shutil.rmtree(path)


def _is_abandoned(path: Path) -> bool:
    with (path / ".lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True
