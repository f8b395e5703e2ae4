"""All topics of one data directory.

    lock                     held by the process that has the directory open; holds its pid
    meta.json                cluster id, producer ids
    recovery-points.json     up to where each partition is known to be durable
    broker-settings.json     broker-wide defaults that were changed while the broker ran
    topics/, log/            see topic_files.py

Topics are created, changed and deleted in two steps, the one that waits for the disk on another thread (see
change.py). A topic is there, as it was or as it is now, or it is not: nobody sees one that is half made, and
one that is being deleted is gone from the moment at which its deletion begins. When file descriptors are
wanting, a deletion stops where it is, and the next call for that topic goes on with it.
"""

from __future__ import annotations

import os
from dataclasses import replace
from threading import Lock
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeVar
from uuid import UUID, uuid4

from headrace.config import check_topic_name
from headrace.errors import (
    ConfigError,
    DataDirectoryInUse,
    StorageError,
    TopicExists,
    UnknownTopic,
    UsageError,
)
from headrace.log.broker_overrides import BrokerOverrides, read_overrides, write_overrides
from headrace.log.change import Change
from headrace.log.disk import SYSTEM_DISK, DiskSpace
from headrace.log.durable_file import make_directory_durably
from headrace.log.failure import FailStop, storage_error
from headrace.log.identity import Identity
from headrace.log.open_files import OpenFiles
from headrace.log.partition import PartitionLog
from headrace.log.recovery_points import RecoveryPoints
from headrace.log.storage import Storage
from headrace.log.topic import Manifest, Topic
from headrace.log.topic_files import TopicFiles
from headrace.log.topic_settings import MESSAGE_BYTES_MAX, TopicSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from headrace.clock import Clock
    from headrace.config import LogConfig
    from headrace.log.disk import Disk
    from headrace.log.recovery import CutTail

PID_BYTES_MAX: Final = 20

Result = TypeVar("Result")


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
    ) -> None:
        self.data_dir = data_dir
        self.static_defaults = TopicSettings.of_broker(config, message_bytes_max=message_bytes_max)
        self._overrides = BrokerOverrides()
        self._defaults = self.static_defaults
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
        )
        self._topic_files = TopicFiles(data_dir, disk)
        self._topics: dict[str, Topic] = {}
        self._topics_by_id: dict[UUID, Topic] = {}
        self._partition_count = 0
        self._changing: dict[str, int] = {}
        """The topics that are being changed, with the number of partitions that this will add."""
        self._creating: set[str] = set()
        self._being_deleted: dict[str, _Deletion] = {}
        """By name, the topics whose files may not all be gone yet."""
        self._changes_lock = Lock()
        self._lock: int | None = None
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
    ) -> LogStore:
        """Take the directory for this process, making it when it is missing, and recover every topic."""
        store = cls(data_dir, config, clock, disk=disk, new_id=new_id, message_bytes_max=message_bytes_max)
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
        return MappingProxyType(self._topics)

    @property
    def topics_by_id(self) -> Mapping[UUID, Topic]:
        """The same by their ids."""
        return MappingProxyType(self._topics_by_id)

    @property
    def topic_count(self) -> int:
        """How many topics there are, those that are being created included."""
        return len(self._topics) + len(self._creating)

    @property
    def partition_count(self) -> int:
        """How many partitions there are, those that are being created included."""
        return self._partition_count + sum(self._changing.values())

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
        return self._defaults

    @property
    def overrides(self) -> BrokerOverrides:
        """Which of the defaults were changed while the broker ran."""
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

    def allocate_producer_ids(self, count: int) -> range:
        """Ids for idempotent producers; none is ever given twice, not even after a crash.

        Waits for the disk when no block is reserved: see `take_producer_ids` for a loop that may not.
        """
        self._fail_stop.check()
        while (taken := self._identity.take(count)) is None:
            self._at_once(self.begin_producer_id_block(count))
        return taken

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
        """The same without waiting: None until a block has been reserved."""
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

    def begin_creation(
        self, name: str, partition_count: int, config: Mapping[str, str] | None = None
    ) -> Change[Topic]:
        """Make a topic. Raises ConfigError, or TopicExists."""
        check_topic_name(name)
        TopicSettings.parse(config or {}, self._defaults)
        if partition_count < 1:
            raise ConfigError(f"topic {name} can't have {partition_count} partitions: use at least 1")
        if name in self._topics or name in self._creating:
            raise TopicExists(f"topic {name} exists already; choose another name or delete it first")
        self._fail_stop.check()
        manifest = Manifest(
            name=name, topic_id=self._new_id(), partition_count=partition_count, config=dict(config or {})
        )
        half_deleted = self._being_deleted.get(name)

        def work() -> Callable[[], Topic]:
            if half_deleted is not None:
                half_deleted.remove_files()
            self._topic_files.add(manifest)
            topic = self._open_topic(manifest)
            self._topic_files.write(manifest)
            return lambda: publish(topic)

        def publish(topic: Topic) -> Topic:
            self._being_deleted.pop(name, None)
            return self._show(topic)

        change = self._change(name, "creating topic", work, new_partition_count=partition_count)
        self._creating.add(name)
        return change

    def begin_deletion(self, name: str) -> Change[None]:
        """Remove a topic with all of its data: it is gone for everybody at once."""
        topic = self._topics.get(name)
        deletion = self._being_deleted.get(name) if topic is None else _Deletion(topic, self._topic_files)
        if deletion is None:
            raise UnknownTopic(f"there is no topic {name}")
        self._fail_stop.check()

        def work() -> Callable[[], None]:
            deletion.remove_files()
            return forget

        def forget() -> None:
            del self._being_deleted[name]

        change = self._change(name, "deleting topic", work, on_end=deletion.close_partitions)
        self._hide(name)
        self._being_deleted[name] = deletion
        return change

    def half_deleted(self, name: str | None, topic_id: UUID | None) -> Topic | None:
        """A topic, by its name or its id, that is hidden but not yet gone for good."""
        return next(
            (
                deletion.topic
                for deletion in self._being_deleted.values()
                if (deletion.topic.topic_id == topic_id if topic_id else deletion.topic.name == name)
            ),
            None,
        )

    def begin_growth(self, name: str, partition_count: int) -> Change[Topic]:
        """Give a topic more partitions, so that it has as many as this."""
        topic = self._topic(name)
        first_new = len(topic.partitions)
        if partition_count <= first_new:
            raise ConfigError(
                f"topic {name} has {first_new} partitions already; their number can only be raised"
            )
        self._fail_stop.check()
        manifest = _manifest(topic, partition_count=partition_count)

        def work() -> Callable[[], Topic]:
            self._topic_files.add(manifest, first_partition=first_new)
            grown = self._open_topic(manifest, known=topic.partitions)
            self._topic_files.write(manifest)
            return lambda: self._show(grown)

        return self._change(
            name, "adding partitions to topic", work, new_partition_count=partition_count - first_new
        )

    def begin_reconfiguration(self, name: str, config: Mapping[str, str]) -> Change[Topic]:
        """Give a topic these settings in place of the ones that it has. Raises ConfigError for a bad one."""
        topic = self._topic(name)
        TopicSettings.parse(config, self._defaults)
        self._fail_stop.check()
        manifest = _manifest(topic, config=config)

        def work() -> Callable[[], Topic]:
            self._topic_files.write(manifest)
            return publish

        def publish() -> Topic:
            return self._show(replace(topic, config=MappingProxyType(dict(config))))

        return self._change(name, "changing the settings of topic", work)

    def begin_override(self, overrides: BrokerOverrides) -> Change[None]:
        """Change the defaults for all topics. Raises ConfigError for a bad one."""
        defaults = overrides.defaults(self.static_defaults)
        for topic in self._topics.values():
            TopicSettings.parse(topic.config, defaults)
        self._fail_stop.check()

        def work() -> Callable[[], None]:
            write_overrides(self.data_dir, self._disk, overrides)
            return publish

        def publish() -> None:
            self._overrides, self._defaults = overrides, defaults
            for topic in self._topics.values():
                self._apply_settings(topic)

        doing = "changing the broker's settings"
        return Change(doing, work, lock=self._changes_lock, fail_stop=self._fail_stop)

    def create_topic(self, name: str, partition_count: int, config: Mapping[str, str] | None = None) -> Topic:
        """Make a topic, waiting for the disk."""
        return self._at_once(self.begin_creation(name, partition_count, config))

    def delete_topic(self, name: str) -> None:
        """Remove a topic with all of its data, waiting for the disk."""
        self._at_once(self.begin_deletion(name))

    def grow_topic(self, name: str, partition_count: int) -> Topic:
        """Give a topic more partitions, waiting for the disk."""
        return self._at_once(self.begin_growth(name, partition_count))

    def configure_topic(self, name: str, config: Mapping[str, str]) -> Topic:
        """Give a topic other settings, waiting for the disk."""
        return self._at_once(self.begin_reconfiguration(name, config))

    def change_defaults(self, overrides: BrokerOverrides) -> None:
        """Change the defaults for all topics, waiting for the disk."""
        self._at_once(self.begin_override(overrides))

    def close(self) -> None:
        """Sync and close all partitions, and let go of the directory."""
        try:
            for partition in self.partitions():
                partition.close()
            if self._lock is not None and self._fail_stop.failed is None:
                self._write_recovery_points()
        finally:
            self._release()

    def _change(
        self,
        name: str,
        doing: str,
        work: Callable[[], Callable[[], Result]],
        *,
        new_partition_count: int = 0,
        on_end: Callable[[], None] = lambda: None,
    ) -> Change[Result]:
        """A change of a topic that nobody else may change before it has ended."""
        if name in self._changing:
            raise UsageError(f"topic {name} is being changed: wait until that has ended")
        self._changing[name] = new_partition_count

        def end() -> None:
            del self._changing[name]
            self._creating.discard(name)
            on_end()

        return Change(f"{doing} {name}", work, lock=self._changes_lock, fail_stop=self._fail_stop, on_end=end)

    def _at_once(self, change: Change[Result]) -> Result:
        change.run()
        return change.finish()

    def _topic(self, name: str) -> Topic:
        topic = self._topics.get(name)
        if topic is None:
            raise UnknownTopic(f"there is no topic {name}")
        return topic

    def _show(self, topic: Topic) -> Topic:
        # The defaults may have been changed since the topic was opened.
        self._apply_settings(topic)
        before = self._topics.get(topic.name)
        self._partition_count += len(topic.partitions) - (0 if before is None else len(before.partitions))
        self._topics[topic.name] = self._topics_by_id[topic.topic_id] = topic
        return topic

    def _apply_settings(self, topic: Topic) -> None:
        settings = TopicSettings.parse(topic.config, self._defaults)
        for partition in topic.partitions:
            partition.change_settings(settings)

    def _hide(self, name: str) -> None:
        topic = self._topics.pop(name, None)
        if topic is not None:
            del self._topics_by_id[topic.topic_id]
            self._partition_count -= len(topic.partitions)

    def partitions(self) -> Iterator[PartitionLog]:
        """All partitions of all topics."""
        return (partition for topic in self._topics.values() for partition in topic.partitions)

    def _open(self) -> None:
        make_directory_durably(self._disk, self.data_dir)
        self._take()
        self._topic_files.open()
        self._disk.sync_directory(self.data_dir)
        self._recovery_points = RecoveryPoints.open(self.data_dir, self._disk)
        self._overrides = read_overrides(self.data_dir, self._disk)
        self._defaults = self._overrides.defaults(self.static_defaults)
        self._identity = Identity.open(self.data_dir, self._disk, self._new_id())
        for manifest in self._topic_files.manifests():
            self._show(self._open_topic(manifest))
        self._write_recovery_points()

    def _take(self) -> None:
        """Lock the directory; the lock goes when the process ends, however it ends."""
        path = self.data_dir / "lock"
        file = self._disk.open(path)
        if not self._disk.lock(file):
            pid = self._disk.read(file, 0, PID_BYTES_MAX).decode(errors="replace").strip()
            self._disk.close(file)
            raise DataDirectoryInUse(
                f"the data directory {self.data_dir} is in use by process {pid or 'unknown'}: "
                "stop that one, or choose another directory"
            )
        self._lock = file
        self._disk.truncate(file, 0)
        self._disk.append(file, [f"{os.getpid()}\n".encode()])

    def _release(self) -> None:
        """Close what is open without another try to sync it."""
        for partition in self.partitions():
            partition.close(sync=False)
        self._files.close_all()
        if self._lock is not None:
            self._disk.close(self._lock)
            self._lock = None

    def _open_topic(self, manifest: Manifest, known: tuple[PartitionLog, ...] = ()) -> Topic:
        """A topic with its partitions; those that are known are open already.

        May run on another thread where all the others are new: opening an empty partition opens no file.
        """
        settings = TopicSettings.parse(manifest.config, self._defaults)
        directories = manifest.directory_names
        partitions = known + tuple(
            PartitionLog.open_existing(
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
            self._recovery_points.write(self._topics.values())
        except OSError as error:
            raise self._fail_stop.fail("writing the recovery points", error) from error


class _Deletion:
    """A topic that nobody sees any more, while its files go."""

    def __init__(self, topic: Topic, files: TopicFiles) -> None:
        self.topic = topic
        self._files = files
        self._is_done = False

    def remove_files(self) -> None:
        """Remove them; does nothing when they are gone. Waits for a sync that is running."""
        if self._is_done:
            return
        for partition in self.topic.partitions:
            partition.retire()
        self._files.delete(self.topic.name, self.topic.topic_id)
        self._is_done = True

    def close_partitions(self) -> None:
        """Close the files that are still open, on the thread that opened them."""
        for partition in self.topic.partitions:
            partition.close(sync=False)


def _manifest(
    topic: Topic, *, partition_count: int | None = None, config: Mapping[str, str] | None = None
) -> Manifest:
    """What is to be written down about a topic, with what changes."""
    return Manifest(
        name=topic.name,
        topic_id=topic.topic_id,
        partition_count=partition_count or len(topic.partitions),
        config=dict(topic.config if config is None else config),
    )
