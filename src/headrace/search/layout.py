"""Where a search index in a directory is.

    INDEX/CURRENT          the name of the generation that counts, replaced at once
    INDEX/g-000001/        a generation: tantivy's files, and columns.json, which comes last: then it is whole
    INDEX/g-<id>/          one that a replay builds, or has built, to take the place of the first
    INDEX/_staging/        rows of a batch on their way; the same in a generation that a replay builds
    INDEX/LOCK             held by whoever makes a generation or changes CURRENT

A reader looks into CURRENT each time. A generation that counts no more is removed: files that are open can be
read on, and who comes too late to open them reads CURRENT again.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

CURRENT: Final = "CURRENT"
LOCK: Final = "LOCK"
COLUMNS: Final = "columns.json"
STAGING: Final = "_staging"
FIRST: Final = "g-000001"
_PREFIX: Final = "g-"


def generation_name(id_: str) -> str:
    """That of a generation which is built by what has this id."""
    return f"{_PREFIX}{id_}"


def current(index: Path) -> Path | None:
    """The generation that counts; None where there is no index."""
    try:
        name = (index / CURRENT).read_text().strip()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return index / name


def is_generation(path: Path) -> bool:
    """Whether this is a generation of an index, rather than an index."""
    return path.name.startswith(_PREFIX) and (path.parent / CURRENT).is_file()


def place(path: Path) -> Path | None:
    """The generation that is meant by the path of an index, or by its own; None where it is not whole."""
    found = path if is_generation(path) else current(path)
    return found if found is not None and (found / COLUMNS).is_file() else None


def point(index: Path, generation: Path) -> None:
    """Let another generation count. On disk on return."""
    write_whole(index / CURRENT, generation.name + "\n")


def others(index: Path) -> list[Path]:
    """The generations that don't count."""
    counts = current(index)
    return [found for found in index.glob(f"{_PREFIX}*") if found != counts]


def write_whole(path: Path, text: str) -> None:
    """Write a file so that it is there whole, or as it was before. On disk on return."""
    new = path.with_name(f"{path.name}~")
    with new.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Let names that were given or taken be on disk."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def locked(index: Path) -> Iterator[None]:
    """Let nobody else make generations meanwhile. The kernel lets go when its holder dies."""
    index.mkdir(parents=True, exist_ok=True)
    with (index / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
