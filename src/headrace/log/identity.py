"""Who this store is and which producer ids it has given away: `meta.json`.

Producer ids are reserved in blocks: the file names the first id that is not reserved, and is durable before
the first id of a block is handed out. A restart skips the rest of the block, so no id is ever given twice.
The next block is reserved when half of the last one has been used, so that nobody has to wait for the disk.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from typing import TYPE_CHECKING, Any, Final

from headrace.errors import StorageError
from headrace.failpoints import hit
from headrace.log.durable_file import read_whole, write_durably

if TYPE_CHECKING:
    from pathlib import Path
    from uuid import UUID

    from headrace.log.disk import Disk

FILE_NAME: Final = "meta.json"
TEMPORARY_NAME: Final = ".meta.unfinished"
"""Other files of the directory may be written on another thread at the same time."""
PRODUCER_ID_BLOCK: Final = 1000
_FORMAT: Final = 1


class Identity:
    """The cluster id and the producer ids of one data directory.

    Used from one thread, but for `write`, which may run in another.
    """

    def __init__(
        self, path: Path, disk: Disk, *, cluster_id: str, next_producer_id: int, reserved_below: int
    ) -> None:
        self.cluster_id = cluster_id
        self._path = path
        self._disk = disk
        self._next_producer_id = next_producer_id
        self._reserved_below = reserved_below
        self._end_of_blocks = reserved_below

    @classmethod
    def open(cls, data_dir: Path, disk: Disk, new_id: UUID) -> Identity:
        """Read the file, or make it with a new cluster id and the first block of producer ids."""
        path = data_dir / FILE_NAME
        if FILE_NAME not in disk.names(data_dir):
            identity = cls(
                path,
                disk,
                cluster_id=_cluster_id(new_id),
                next_producer_id=0,
                reserved_below=PRODUCER_ID_BLOCK,
            )
            identity.write(PRODUCER_ID_BLOCK)
            return identity
        try:
            fields: dict[str, Any] = json.loads(read_whole(disk, path))
            next_producer_id = int(fields["next_producer_id"])
            return cls(
                path,
                disk,
                cluster_id=str(fields["cluster_id"]),
                next_producer_id=next_producer_id,
                reserved_below=next_producer_id,
            )
        except (ValueError, KeyError, TypeError) as error:
            raise StorageError(f"{path} can't be read ({error!r}); restore it from a copy") from error

    @property
    def is_low(self) -> bool:
        """Whether less than half a block is left and no further one has been begun."""
        is_begun = self._end_of_blocks > self._reserved_below
        return not is_begun and self._reserved_below - self._next_producer_id < PRODUCER_ID_BLOCK // 2

    def take(self, count: int) -> range | None:
        """Ids that nobody had before and nobody will get again; None when so many are not reserved."""
        first = self._next_producer_id
        if first + count > self._reserved_below:
            return None
        self._next_producer_id = first + count
        return range(first, first + count)

    def next_block(self, count: int) -> int:
        """Begin a block that is large enough for so many: the first id after it."""
        self._end_of_blocks = self._reserved_below + max(count, PRODUCER_ID_BLOCK)
        return self._end_of_blocks

    def reserved(self, reserved_below: int) -> None:
        """Note that it is durable that the ids below this one are reserved."""
        self._reserved_below = self._end_of_blocks = max(reserved_below, self._reserved_below)

    def not_begun(self) -> None:
        """Note that no further block is being reserved."""
        self._end_of_blocks = self._reserved_below

    def write(self, reserved_below: int) -> None:
        """Write down that the ids below this one are reserved. Waits for the disk."""
        content = {
            "format": _FORMAT,
            "cluster_id": self.cluster_id,
            "next_producer_id": reserved_below,
        }
        data = json.dumps(content, indent=2).encode() + b"\n"
        hit("store.producer_ids")
        write_durably(self._disk, self._path, data, temporary_name=TEMPORARY_NAME)
        hit("store.producer_ids.reserved")


def _cluster_id(new_id: UUID) -> str:
    """The id as Kafka writes it: 22 characters of URL-safe base64."""
    return urlsafe_b64encode(new_id.bytes).rstrip(b"=").decode()
