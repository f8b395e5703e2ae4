"""The queues without sockets and threads: the journal in its directory, the broker on top of it.

Whatever takes time is asked of others: `start_sync` has the journal synced elsewhere (`QueueEngine.sync`) and
`synced` called on the event loop's thread after that; `submit` has work done elsewhere and calls back. So the
same engine runs with threads (threads.py), and in a simulation where time, disk and threads are played.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from headrace.errors import StorageError
from headrace.log.disk import SYSTEM_DISK
from headrace.log.durable_file import make_directory_durably
from headrace.log.failure import FailStop, storage_error
from headrace.log.open_files import OpenFiles
from headrace.log.partition import PartitionLog
from headrace.log.storage import Storage
from headrace.log.topic_settings import TopicSettings
from headrace.queue.broker import QueueBroker
from headrace.queue.journal import LogJournal
from headrace.queue.reclaiming import Reclaiming
from headrace.queue.recovery import Recovery

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from headrace.clock import Clock
    from headrace.config import Durability
    from headrace.log.disk import Disk
    from headrace.queue.limits import QueueLimits
    from headrace.queue.reclaiming import Submit
    from headrace.queue.services import Handle, Loop

logger: Final = logging.getLogger(__name__)

QUEUES_DIRECTORY: Final = "queues"
JOURNAL_DIRECTORY: Final = "journal-0"
DISK_LOOK_S: Final = 1.0
RETRY_S: Final = 0.2
"""How long to wait before a file is opened again that could not be."""


class QueueEngine:
    """Belongs to the event loop's thread, but for `sync`."""

    def __init__(  # noqa: PLR0913  # What is asked of others.
        self,
        data_dir: Path,
        limits: QueueLimits,
        clock: Clock,
        loop: Loop,
        *,
        start_sync: Callable[[], None],
        submit: Submit,
        disk: Disk = SYSTEM_DISK,
        durability: Durability = "sync",
        on_failure: Callable[[StorageError], None] = lambda _: None,
    ) -> None:
        """Open the journal below a data directory that this process has locked, and recover the queues."""
        self._limits = limits
        self._loop = loop
        self._disk = disk
        self._directory = data_dir / QUEUES_DIRECTORY
        self._storage = Storage(disk=disk, files=OpenFiles(disk), fail_stop=FailStop())
        self._disk_timer: Handle | None = None
        self._is_stopped = False
        self._on_failure = on_failure
        self.log = self._open_log(clock)
        self.journal = LogJournal(
            self.log,
            clock,
            start_sync,
            try_again=self._try_again,
            is_synchronous=durability == "sync",
            on_failure=self._failed,
        )
        self.broker = QueueBroker(limits, clock, loop, journal=self.journal)
        self._recover()
        self._reclaiming = Reclaiming(
            self.broker, self.journal, submit, segment_bytes=limits.journal_segment_bytes
        )
        # Checkpoints of the journal are made when it is closed, and beside its syncs.
        self._is_checkpoint_due = False
        self._storage.on_checkpoint_due = self._note_checkpoint
        self._submit = submit

    def start(self) -> None:
        """Begin with what is done from time to time."""
        self._look_at_disk()

    def sync(self) -> StorageError | None:
        """Sync the journal; return what went wrong, if anything did. May run on any thread."""
        try:
            self.log.sync()
        except StorageError as error:
            return error
        except Exception as error:
            # Whoever waits must hear something: a mistake of ours counts as a disk that has failed.
            logger.exception("syncing the queues' journal failed in an unexpected way")
            return StorageError(f"syncing the queues' journal failed in an unexpected way: {error!r}")
        return None

    def synced(self, error: StorageError | None) -> None:
        """Note that a sync which was asked for has come to its end."""
        if self._is_stopped:
            return
        self.journal.synced(error)
        self._reclaiming.look()
        if self._is_checkpoint_due:
            self._is_checkpoint_due = False
            self._submit(self._checkpoint, lambda: None)

    def stop(self) -> None:
        """Close all connections, note exactly what was delivered, sync, and close the journal.

        To be called once nobody syncs and no work is submitted any more.
        """
        if self._is_stopped:
            return
        if self._disk_timer is not None:
            self._disk_timer.cancel()
        self.broker.stop()
        for queue in self.broker.services.queues.values():
            if queue.is_stored:
                self.journal.horizon(queue.queue_id, queue.exact_horizon())
        self._is_stopped = True
        self.journal.flush()
        self.log.close(sync=self.journal.failed is None)
        self._storage.files.close_all()

    def abandon(self) -> None:
        """Let go of the files without another write, as a crash would."""
        self._is_stopped = True
        self.broker.services.stop()
        if self._disk_timer is not None:
            self._disk_timer.cancel()
        self.log.close(sync=False)
        self._storage.files.close_all()

    def _try_again(self, call: Callable[[], None]) -> None:
        self._loop.call_later(RETRY_S, lambda: None if self._is_stopped else call())

    def _open_log(self, clock: Clock) -> PartitionLog:
        directory = self._directory / JOURNAL_DIRECTORY
        try:
            make_directory_durably(self._disk, self._directory)
            make_directory_durably(self._disk, directory)
        except OSError as error:
            raise storage_error(f"making the directory {directory}", error) from error
        settings = TopicSettings(
            segment_bytes=self._limits.journal_segment_bytes, max_message_bytes=2**31 - 1
        )
        try:
            return PartitionLog.open(directory, settings, clock, self._storage)
        except BaseException:
            self._storage.files.close_all()
            raise

    def _recover(self) -> None:
        recovery = Recovery(self.broker, self.journal.needed)
        try:
            recovery.run(self.log)
        except BaseException:
            self.abandon()
            raise
        if recovery.message_count:
            logger.info("%d messages wait in queues", recovery.message_count)

    def _note_checkpoint(self, _: PartitionLog) -> None:
        self._is_checkpoint_due = True

    def _checkpoint(self) -> None:
        try:
            self.log.checkpoint()
        except StorageError as error:
            # The next sync fails for the same reason, and says so to everybody.
            logger.warning("%s", error)

    def _look_at_disk(self) -> None:
        try:
            usable_bytes = self._disk.space(self._directory).usable_bytes
        except OSError:
            usable_bytes = -1
        is_low = 0 <= usable_bytes < self._limits.disk_free_bytes_min
        self.broker.set_alarm("disk", is_on=is_low)
        self._reclaiming.look()
        self._disk_timer = self._loop.call_later(DISK_LOOK_S, self._look_at_disk)

    def _failed(self, error: StorageError) -> None:
        logger.critical("THE QUEUES TAKE NO MORE MESSAGES. %s", error)
        self.broker.fail()
        self._on_failure(error)
