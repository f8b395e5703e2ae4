"""All that one data directory holds, open in one process.

lock                     see directory_lock.py
meta.json                cluster id, producer ids
recovery-points.json     up to where each partition is known to be durable
broker-settings.json     what was set while the broker ran: broker-wide defaults, settings of groups
topics/, log/            see topic_files.py
"""

from __future__ import annotations

from threading import Lock
from types import MappingProxyType
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

from headrace.errors import StorageError
from headrace.log.broker_overrides import BrokerOverrides, read_overrides, write_overrides
from headrace.log.change import Change
from headrace.log.directory_lock import DirectoryLock
from headrace.log.disk import SYSTEM_DISK, DiskSpace
from headrace.log.durable_file import make_directory_durably
from headrace.log.failure import FailStop, storage_error
from headrace.log.identity import Identity
from headrace.log.open_files import OpenFiles
from headrace.log.partition import PartitionLog
from headrace.log.recovery_points import RecoveryPoints
from headrace.log.storage import Storage
from headrace.log.stored_batches import Lending
from headrace.log.topic import Topic
from headrace.log.topic_catalog import TopicCatalog
from headrace.log.topic_files import TopicFiles
from headrace.log.topic_settings import MESSAGE_BYTES_MAX, TopicSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from headrace.clock import Clock
    from headrace.config import LogConfig
    from headrace.log.disk import Disk
    from headrace.log.recovery import CutTail
    from headrace.log.topic import Manifest


class LogStore:
    """The topics of a data directory, open in this process alone.

    Used from one thread, the event loop, but for `Change.run`, which may run in another.
    """

    def __init__(
        self,
        data_dir: Path,
        config: LogConfig,
        clock: Clock,
        *,
        disk: Disk,
        new_id: Callable[[], UUID],
        message_bytes_max: int,
        lending: Lending,
    ) -> None:
        self.data_dir = data_dir
        self.static_defaults = TopicSettings.of_broker(config, message_bytes_max=message_bytes_max)
        self._overrides = BrokerOverrides()
        self._clock = clock
        self._disk = disk
        self._new_id = new_id
        self._fail_stop = FailStop()
        self._files = OpenFiles(disk)
        self._storage = Storage(
            disk=disk,
            files=self._files,
            fail_stop=self._fail_stop,
            producer_expiration_ms=config.producer_id_expiration_ms,
            checkpoint_bytes=config.checkpoint_bytes,
            lending=lending,
        )
        self._topic_files = TopicFiles(data_dir, disk)
        self._changes_lock = Lock()
        self.catalog = TopicCatalog(
            self._topic_files,
            self._open_topic,
            defaults=self.static_defaults,
            changes_lock=self._changes_lock,
            fail_stop=self._fail_stop,
            new_id=new_id,
        )
        """The topics, and how to change them."""
        self._lock = DirectoryLock(data_dir, disk)
        self._identity: Identity
        self._recovery_points: RecoveryPoints

    @classmethod
    def open(
        cls,
        data_dir: Path,
        config: LogConfig,
        clock: Clock,
        *,
        disk: Disk = SYSTEM_DISK,
        new_id: Callable[[], UUID] = uuid4,
        message_bytes_max: int = MESSAGE_BYTES_MAX,
        lending: Lending | None = None,
    ) -> LogStore:
        """Take the directory for this process, making it when it is missing, and recover every topic."""
        store = cls(
            data_dir,
            config,
            clock,
            disk=disk,
            new_id=new_id,
            message_bytes_max=message_bytes_max,
            lending=lending or Lending(),
        )
        try:
            store._open()
        except OSError as error:
            store._release()
            raise storage_error(f"opening the data directory {data_dir}", error) from error
        except BaseException:
            store._release()
            raise
        return store

    @property
    def topics(self) -> Mapping[str, Topic]:
        """All topics by name."""
        return self.catalog.topics

    @property
    def topics_by_id(self) -> Mapping[UUID, Topic]:
        """The same by their ids."""
        return self.catalog.topics_by_id

    def partitions(self) -> Iterator[PartitionLog]:
        """All partitions of all topics."""
        return self.catalog.partitions()

    @property
    def failed(self) -> StorageError | None:
        """The first failed write or sync; no write is taken after it."""
        return self._fail_stop.failed

    @property
    def cluster_id(self) -> str:
        """An id that was made with the data directory and stays with it."""
        return self._identity.cluster_id

    @property
    def defaults(self) -> TopicSettings:
        """What holds for a topic for which nobody set anything."""
        return self.catalog.defaults

    @property
    def overrides(self) -> BrokerOverrides:
        """Which of the defaults were changed while the broker ran, and what was set for groups."""
        return self._overrides

    @property
    def cuts(self) -> list[CutTail]:
        """What opening had to cut off."""
        return [partition.cut for partition in self.partitions() if partition.cut is not None]

    def make_checkpoints(self, on_due: Callable[[PartitionLog], None]) -> None:
        """From now on, `on_due` is called with each partition whose `checkpoint` is to be called.

        It is called on the event loop's thread, and has the checkpoint made on another. Without this, a
        checkpoint is made only when a partition is closed.
        """
        self._storage.on_checkpoint_due = on_due

    @property
    def log_dir(self) -> Path:
        """The directory that holds the partitions."""
        return self._topic_files.log_dir

    def space(self) -> DiskSpace:
        """The space on the disk that holds the partitions."""
        try:
            return self._disk.space(self.log_dir)
        except OSError:
            return DiskSpace(-1, -1)

    def take_producer_ids(self, count: int) -> range | None:
        """Ids for idempotent producers; none is ever given twice, not even after a crash.

        None until so many have been reserved: see `begin_producer_id_block`.
        """
        self._fail_stop.check()
        return self._identity.take(count)

    @property
    def wants_producer_id_block(self) -> bool:
        """Whether the ids that are reserved will not last long."""
        return self._identity.is_low

    def begin_producer_id_block(self, count: int = 1) -> Change[None]:
        """Reserve the next block of producer ids, enough for so many."""
        self._fail_stop.check()
        reserved_below = self._identity.next_block(count)

        def work() -> Callable[[], None]:
            self._identity.write(reserved_below)
            return lambda: self._identity.reserved(reserved_below)

        return Change(
            "reserving producer ids",
            work,
            lock=self._changes_lock,
            fail_stop=self._fail_stop,
            on_end=self._identity.not_begun,
        )

    def begin_override(self, overrides: BrokerOverrides) -> Change[None]:
        """Change the defaults for all topics, or what is set for groups. Raises ConfigError for a bad one."""
        defaults = overrides.defaults(self.static_defaults)
        has_other_defaults = defaults != self.defaults
        if has_other_defaults:
            self.catalog.check_defaults(defaults)
        self._fail_stop.check()

        def work() -> Callable[[], None]:
            write_overrides(self.data_dir, self._disk, overrides)
            return publish

        def publish() -> None:
            self._overrides = overrides
            if has_other_defaults:
                self.catalog.change_defaults(defaults)

        doing = "changing the broker's settings"
        return Change(doing, work, lock=self._changes_lock, fail_stop=self._fail_stop)

    def close(self) -> None:
        """Sync and close all partitions, and let go of the directory."""
        try:
            for partition in self.partitions():
                partition.close()
            if self._lock.is_held and self._fail_stop.failed is None:
                self._write_recovery_points()
        finally:
            self._release()

    def _open(self) -> None:
        make_directory_durably(self._disk, self.data_dir)
        self._lock.take()
        self._topic_files.open()
        self._disk.sync_directory(self.data_dir)
        self._recovery_points = RecoveryPoints.open(self.data_dir, self._disk)
        self._overrides = read_overrides(self.data_dir, self._disk)
        self.catalog.defaults = self._overrides.defaults(self.static_defaults)
        self._identity = Identity.open(self.data_dir, self._disk, self._new_id())
        for manifest in self._topic_files.manifests():
            self.catalog.show(self._open_topic(manifest))
        self._write_recovery_points()

    def _release(self) -> None:
        """Close what is open without another try to sync it."""
        for partition in self.partitions():
            partition.close(sync=False)
        self._files.close_all()
        self._lock.release()

    def _open_topic(self, manifest: Manifest, known: tuple[PartitionLog, ...] = ()) -> Topic:
        """A topic with its partitions; those that are known are open already.

        May run on another thread where all the others are new: opening an empty partition opens no file.
        """
        settings = TopicSettings.parse(manifest.config, self.catalog.defaults)
        directories = manifest.directory_names
        partitions = known + tuple(
            PartitionLog.open(
                self._topic_files.log_dir / directories[number],
                settings,
                self._clock,
                self._storage,
                recovery_point=self._recovery_points.of(manifest.topic_id, number),
            )
            for number in range(len(known), len(directories))
        )
        return Topic(
            name=manifest.name,
            topic_id=manifest.topic_id,
            partitions=partitions,
            config=MappingProxyType(dict(manifest.config)),
        )

    def _write_recovery_points(self) -> None:
        try:
            self._recovery_points.write(self.topics.values())
        except OSError as error:
            raise self._fail_stop.fail("writing the recovery points", error) from error
