"""Who this store is and which producer ids it has given away: `meta.json`.

Producer ids are reserved in blocks: the file names the first id that is not reserved, and is durable before
the first id of a block is handed out. A restart skips the rest of the block, so no id is ever given twice.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from typing import TYPE_CHECKING, Any, Final

from headrace.errors import StorageError
from headrace.log.durable_file import read_whole, write_durably

if TYPE_CHECKING:
    from pathlib import Path
    from uuid import UUID

    from headrace.log.disk import Disk

FILE_NAME: Final = "meta.json"
PRODUCER_ID_BLOCK: Final = 1000
_FORMAT: Final = 1


class Identity:
    """The cluster id and the producer ids of one data directory. Used from one thread."""

    def __init__(self, path: Path, disk: Disk, *, cluster_id: str, next_producer_id: int) -> None:
        self.cluster_id = cluster_id
        self._path = path
        self._disk = disk
        self._next_producer_id = next_producer_id
        self._reserved_below = next_producer_id

    @classmethod
    def open(cls, data_dir: Path, disk: Disk, new_id: UUID) -> Identity:
        """Read the file, or make it with a new cluster id."""
        path = data_dir / FILE_NAME
        if FILE_NAME not in disk.names(data_dir):
            identity = cls(path, disk, cluster_id=_cluster_id(new_id), next_producer_id=0)
            identity._write(0)
            return identity
        try:
            fields: dict[str, Any] = json.loads(read_whole(disk, path))
            return cls(
                path,
                disk,
                cluster_id=str(fields["cluster_id"]),
                next_producer_id=int(fields["next_producer_id"]),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise StorageError(f"{path} can't be read ({error!r}); restore it from a copy") from error

    def allocate_producer_ids(self, count: int) -> range:
        """Ids that nobody had before and nobody will get again."""
        first = self._next_producer_id
        if first + count > self._reserved_below:
            reserved_below = first + max(count, PRODUCER_ID_BLOCK)
            self._write(reserved_below)
            self._reserved_below = reserved_below
        self._next_producer_id = first + count
        return range(first, first + count)

    def _write(self, reserved_below: int) -> None:
        content = {
            "format": _FORMAT,
            "cluster_id": self.cluster_id,
            "next_producer_id": reserved_below,
        }
        write_durably(self._disk, self._path, json.dumps(content, indent=2).encode() + b"\n")


def _cluster_id(new_id: UUID) -> str:
    """The id as Kafka writes it: 22 characters of URL-safe base64."""
    return urlsafe_b64encode(new_id.bytes).rstrip(b"=").decode()
