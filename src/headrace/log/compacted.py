"""Up to where a partition has been compacted: `compacted.json` in its directory.

    {"format": 1, "compacted_below": <offset>}

Written after what it speaks of. So it is old at worst, and then some records are compacted again. It saves
work and no more: one that can't be read is reported and done without.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Final

from headrace.log.durable_file import TEMPORARY_NAME, read_whole, write_durably

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.log.disk import Disk

logger: Final = logging.getLogger(__name__)

COMPACTED_NAME: Final = "compacted.json"
TEMPORARY_COMPACTED_NAME: Final = f"{TEMPORARY_NAME}-compacted"
"""Of its own, because segments are sealed in the same directory at the same time."""
_FORMAT: Final = 1


def read_compacted_below(disk: Disk, directory: Path) -> int:
    """The offset below which each key is there once; 0 where nothing is known."""
    path = directory / COMPACTED_NAME
    if COMPACTED_NAME not in disk.names(directory):
        return 0
    try:
        fields = json.loads(read_whole(disk, path))
        return int(fields["compacted_below"]) if fields["format"] == _FORMAT else 0
    except (ValueError, KeyError, TypeError) as error:
        logger.warning("%s can't be read (%r): the partition is compacted from its start", path, error)
        return 0


def write_compacted_below(disk: Disk, directory: Path, offset: int) -> None:
    """Write it down, durably."""
    content = json.dumps({"format": _FORMAT, "compacted_below": offset}).encode() + b"\n"
    write_durably(disk, directory / COMPACTED_NAME, content, temporary_name=TEMPORARY_COMPACTED_NAME)
