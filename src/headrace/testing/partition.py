"""One partition on its own, without a store around it: for tests of the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.log.disk import SYSTEM_DISK
from headrace.log.durable_file import make_directory_durably
from headrace.log.failure import FailStop, storage_error
from headrace.log.open_files import OpenFiles
from headrace.log.partition import PartitionLog
from headrace.log.storage import Storage

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.clock import Clock
    from headrace.log.disk import Disk
    from headrace.log.topic_settings import TopicSettings


def open_log(
    directory: Path,
    settings: TopicSettings,
    clock: Clock,
    *,
    disk: Disk = SYSTEM_DISK,
    storage: Storage | None = None,
) -> PartitionLog:
    """Open a partition, making its directory where that is missing."""
    storage = storage or Storage(disk=disk, files=OpenFiles(disk), fail_stop=FailStop())
    try:
        make_directory_durably(storage.disk, directory)
    except OSError as error:
        raise storage_error(f"making the directory {directory}", error) from error
    try:
        return PartitionLog.open(directory, settings, clock, storage)
    except BaseException:
        storage.files.close_all()
        raise


def delete_records(log: PartitionLog, before_offset: int) -> int:
    """Delete all records below an offset, waiting for the disk; return where the log begins then."""
    start_offset = log.begin_record_deletion(before_offset).at_once()
    log.remove_deleted_files()
    return start_offset
