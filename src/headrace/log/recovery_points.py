"""Up to where each partition is known to be durable: `recovery-points.json`.

    {"format": 1, "durable_offsets": {"<topic id>": [<offset of partition 0>, <of partition 1>, ...]}}

Written when a store has been opened and when it has been closed in good order. A partition only grows, so
what was true when it was written stays true: after a crash the file is old, never wrong. Only a person may
make a partition shorter, with the store closed; that is why opening writes the file before anything is
appended. Topics have ids, so one that is made anew under an old name takes nothing over.

While a store is open, each partition's checkpoints say the same about it, so that not much is unknown after a
crash (see checkpoint.py); this file is for all those that have none because they are small.

The file saves work and no more: a partition that it does not name is written again where it is not sealed and
lies beyond the checkpoint (see recovery.py). So a file that can't be read is reported and done without.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Final

from headrace.log.durable_file import read_whole, write_durably

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path
    from uuid import UUID

    from headrace.log.disk import Disk
    from headrace.log.topic import Topic

logger: Final = logging.getLogger(__name__)

FILE_NAME: Final = "recovery-points.json"
_FORMAT: Final = 1


class RecoveryPoints:
    """The recovery points of one data directory. Used from one thread."""

    def __init__(self, path: Path, disk: Disk, durable_offsets: dict[str, list[int]]) -> None:
        self._path = path
        self._disk = disk
        self._durable_offsets = durable_offsets

    @classmethod
    def open(cls, data_dir: Path, disk: Disk) -> RecoveryPoints:
        """Read the file, if there is one."""
        path = data_dir / FILE_NAME
        if FILE_NAME not in disk.names(data_dir):
            return cls(path, disk, {})
        try:
            return cls(path, disk, _decode(read_whole(disk, path)))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            logger.warning("%s can't be read (%r): starting takes longer without it", path, error)
            return cls(path, disk, {})

    def of(self, topic_id: UUID, partition: int) -> int:
        """The offset below which a partition is known to be durable."""
        offsets = self._durable_offsets.get(str(topic_id), [])
        return offsets[partition] if partition < len(offsets) else 0

    def write(self, topics: Iterable[Topic]) -> None:
        """Note how far the partitions are durable now, unless that is what the file says already."""
        durable_offsets = {
            str(topic.topic_id): [partition.durable_offset for partition in topic.partitions]
            for topic in topics
        }
        if durable_offsets != self._durable_offsets:
            content = {"format": _FORMAT, "durable_offsets": durable_offsets}
            write_durably(self._disk, self._path, json.dumps(content).encode() + b"\n")
            self._durable_offsets = durable_offsets


def _decode(content: bytes) -> dict[str, list[int]]:
    fields = json.loads(content)
    if fields["format"] != _FORMAT:
        raise ValueError(f"format {fields['format']!r}, only {_FORMAT} is understood")
    return {
        str(topic_id): [int(offset) for offset in offsets]
        for topic_id, offsets in fields["durable_offsets"].items()
    }
