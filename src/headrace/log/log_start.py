"""Where a partition begins for its readers: `log-start.json` in its directory.

    {"format": 1, "log_start_offset": <offset>}

Records below the offset were deleted: by somebody's request, or by retention. The file is durable before
anybody hears of the deletion, and before a file goes. So a crash can't bring deleted records back, and the
names that it may bring back are removed when the partition is opened. Without the file, a partition begins
with its first segment.

The offset also says that no record below it will ever come: a partition of which every file is lost, or whose
end was cut off, goes on with the log's start at the least. So no offset is given twice.
"""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from headrace.errors import StorageError
from headrace.log.durable_file import TEMPORARY_NAME, read_whole, write_durably

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from headrace.log.disk import Disk

LOG_START_NAME: Final = "log-start.json"
TEMPORARY_LOG_START_NAME: Final = f"{TEMPORARY_NAME}-log-start"
"""Of its own, because segments are sealed in the same directory at the same time."""

_FORMAT: Final = 1
_SEGMENT_FILE: Final = re.compile(r"(\d{20})\..+")
_LOG_FILE: Final = re.compile(r"(\d{20})\.log")


def read_log_start(disk: Disk, directory: Path) -> int:
    """The first offset that may be read; 0 where nothing was deleted."""
    path = directory / LOG_START_NAME
    if LOG_START_NAME not in disk.names(directory):
        return 0
    try:
        return _decode(read_whole(disk, path))
    except (ValueError, KeyError, TypeError) as error:
        raise StorageError(
            f"{path} can't be read ({error!r}): restore it from a copy, or remove it to have back what was "
            "deleted and is still there"
        ) from error


def write_log_start(disk: Disk, directory: Path, offset: int) -> None:
    """Return once the records below the offset are deleted for good."""
    content = json.dumps({"format": _FORMAT, "log_start_offset": offset}).encode() + b"\n"
    write_durably(disk, directory / LOG_START_NAME, content, temporary_name=TEMPORARY_LOG_START_NAME)


def _decode(content: bytes) -> int:
    fields = json.loads(content)
    offset = int(fields["log_start_offset"])
    if fields["format"] != _FORMAT or offset < 0:
        raise ValueError(f"format {fields['format']!r}, offset {offset}")
    return offset


def remove_deleted(disk: Disk, directory: Path) -> int:
    """Remove the segments that end below the log's start, when a partition is opened; return that start."""
    log_start = read_log_start(disk, directory)
    names = disk.names(directory)
    bases = sorted(int(match[1]) for name in names if (match := _LOG_FILE.fullmatch(name)))
    ended = [base for base, next_base in pairwise(bases) if next_base <= log_start]
    remove_segments(disk, directory, ended)
    return log_start


def remove_segments(disk: Disk, directory: Path, base_offsets: Iterable[int]) -> None:
    """Remove all files that have one of the offsets for a name, as far as they are there."""
    bases = set(base_offsets)
    for name in disk.names(directory) if bases else ():
        if bases.intersection(segment_bases((name,))):
            disk.unlink(directory / name)


def segment_bases(names: Iterable[str]) -> set[int]:
    """The offsets that files have for a name."""
    return {int(match[1]) for name in names if (match := _SEGMENT_FILE.fullmatch(name))}
