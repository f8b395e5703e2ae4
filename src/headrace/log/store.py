"""All topics of one data directory.

    lock                     held by the process that has the directory open; holds its pid
    meta.json                cluster id, producer ids
    recovery-points.json     up to where each partition is known to be durable
    topics/<topic>.json      a topic's manifest
    topics/<topic id>.gone   the manifest of a topic that is being deleted
    log/<topic>-<number>/    a partition's segments

The manifest is what makes a topic. Creating one makes the partitions' directories first and the manifest
last; deleting one renames the manifest first and removes the directories after. When a crash comes between,
the next start goes on with it; when file descriptors are wanting, the next call for that topic does.
Directories without a manifest are never touched: an empty one is taken over when its topic is created, one
with files in it is an error.
"""

from __future__ import annotations

import os
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Final
from uuid import UUID, uuid4

from headrace.config import check_topic_name
from headrace.errors import ConfigError, DataDirectoryInUse, StorageError, TopicExists, UnknownTopic
from headrace.log.disk import SYSTEM_DISK, OpenRefused
from headrace.log.durable_file import TEMPORARY_NAME, make_directory_durably, read_whole, write_durably
from headrace.log.failure import FailStop, storage_error
from headrace.log.identity import Identity
from headrace.log.open_files import OpenFiles
from headrace.log.partition import PartitionLog
from headrace.log.recovery_points import RecoveryPoints
from headrace.log.topic import Manifest, Topic, decode_manifest, encode_manifest
from headrace.log.topic_settings import TopicSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from headrace.clock import Clock
    from headrace.config import LogConfig
    from headrace.log.disk import Disk
    from headrace.log.recovery import CutTail

PID_BYTES_MAX: Final = 20
MANIFEST_SUFFIX: Final = ".json"
GONE_SUFFIX: Final = ".gone"


class LogStore:
    """The topics of a data directory, open in this process alone. Used from one thread, the event loop."""

    def __init__(
        self,
        data_dir: Path,
        config: LogConfig,
        clock: Clock,
        *,
        disk: Disk,
        new_id: Callable[[], UUID],
    ) -> None:
        self.data_dir = data_dir
        self._config = config
        self._defaults = TopicSettings.of_broker(config)
        self._clock = clock
        self._disk = disk
        self._new_id = new_id
        self._fail_stop = FailStop()
        self._files = OpenFiles(disk)
        self._topics: dict[str, Topic] = {}
        self._being_deleted: dict[str, Path] = {}
        """By name, the renamed manifests of topics whose deletion could not be finished yet."""
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
    ) -> LogStore:
        """Take the directory for this process, making it when it is missing, and recover every topic."""
        store = cls(data_dir, config, clock, disk=disk, new_id=new_id)
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
    def failed(self) -> StorageError | None:
        """The first failed write or sync; no write is taken after it."""
        return self._fail_stop.failed

    @property
    def cluster_id(self) -> str:
        """An id that was made with the data directory and stays with it."""
        return self._identity.cluster_id

    @property
    def cuts(self) -> list[CutTail]:
        """What opening had to cut off."""
        return [partition.cut for partition in self._partitions() if partition.cut is not None]

    def allocate_producer_ids(self, count: int) -> range:
        """Ids for idempotent producers; none is ever given twice, not even after a crash."""
        self._fail_stop.check()
        try:
            return self._identity.allocate_producer_ids(count)
        except OSError as error:
            raise self._fail_stop.fail("reserving producer ids", error) from error

    def create_topic(self, name: str, partition_count: int, config: Mapping[str, str] | None = None) -> Topic:
        """Make a topic: a crash before this returns leaves all of it or nothing, one after it all."""
        check_topic_name(name)
        if partition_count < 1:
            raise ConfigError(f"topic {name} can't have {partition_count} partitions: use at least 1")
        if name in self._topics:
            raise TopicExists(f"topic {name} exists already; choose another name or delete it first")
        self._fail_stop.check()
        manifest = Manifest(
            name=name, topic_id=self._new_id(), partition_count=partition_count, config=dict(config or {})
        )
        try:
            if name in self._being_deleted:
                self._finish_deletion(name)
            self._require_unused(manifest)
            for directory_name in manifest.directory_names:
                self._disk.make_directory(self._log_dir / directory_name)
            self._disk.sync_directory(self._log_dir)
            topic = self._open_topic(manifest)
            self._write_manifest(manifest)
        except OSError as error:
            raise self._fail_stop.fail(f"creating topic {name}", error) from error
        self._topics[name] = topic
        return topic

    def delete_topic(self, name: str) -> None:
        """Remove a topic with all of its data. If a crash comes between, the next start finishes it."""
        topic = self._topics.get(name)
        if topic is None and name not in self._being_deleted:
            raise UnknownTopic(f"there is no topic {name}")
        self._fail_stop.check()
        try:
            if topic is not None:
                self._begin_deletion(topic)
            self._finish_deletion(name)
        except OSError as error:
            raise self._fail_stop.fail(f"deleting topic {name}", error) from error

    def close(self) -> None:
        """Sync and close all partitions, and let go of the directory."""
        try:
            for partition in self._partitions():
                partition.close()
            if self._lock is not None and self._fail_stop.failed is None:
                self._write_recovery_points()
        finally:
            self._release()

    @property
    def _log_dir(self) -> Path:
        return self.data_dir / "log"

    @property
    def _topics_dir(self) -> Path:
        return self.data_dir / "topics"

    def _partitions(self) -> Iterator[PartitionLog]:
        return (partition for topic in self._topics.values() for partition in topic.partitions)

    def _manifest_path(self, name: str) -> Path:
        return self._topics_dir / f"{name}{MANIFEST_SUFFIX}"

    def _open(self) -> None:
        make_directory_durably(self._disk, self.data_dir)
        self._take()
        for directory in (self._log_dir, self._topics_dir, self.data_dir):
            make_directory_durably(self._disk, directory)
            # A process that was killed may have left names in it that were never synced.
            self._disk.sync_directory(directory)
        self._recovery_points = RecoveryPoints.open(self.data_dir, self._disk)
        self._identity = Identity.open(self.data_dir, self._disk, self._new_id())
        names = self._disk.names(self._topics_dir)
        if TEMPORARY_NAME in names:
            self._disk.unlink(self._topics_dir / TEMPORARY_NAME)
        for name in names:
            if name.endswith(GONE_SUFFIX):
                self._remove_topic(self._topics_dir / name)
        directories = set(self._disk.names(self._log_dir))
        for name in names:
            if name.endswith(MANIFEST_SUFFIX):
                manifest = self._read_manifest(self._topics_dir / name)
                self._require_all(manifest, directories)
                self._topics[manifest.name] = self._open_topic(manifest)
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
        for partition in self._partitions():
            partition.close(sync=False)
        self._files.close_all()
        if self._lock is not None:
            self._disk.close(self._lock)
            self._lock = None

    def _open_topic(self, manifest: Manifest) -> Topic:
        settings = TopicSettings.parse(manifest.config, self._defaults)
        partitions = tuple(
            PartitionLog.open_existing(
                self._log_dir / name,
                settings,
                self._clock,
                disk=self._disk,
                files=self._files,
                fail_stop=self._fail_stop,
                recovery_point=self._recovery_points.of(manifest.topic_id, number),
                producer_expiration_ms=self._config.producer_id_expiration_ms,
            )
            for number, name in enumerate(manifest.directory_names)
        )
        return Topic(
            name=manifest.name,
            topic_id=manifest.topic_id,
            partitions=partitions,
            config=MappingProxyType(dict(manifest.config)),
        )

    def _write_manifest(self, manifest: Manifest) -> None:
        path = self._manifest_path(manifest.name)
        try:
            write_durably(self._disk, path, encode_manifest(manifest))
        except OpenRefused:
            # The topic is not made; but its manifest may have got its name, though not durably.
            with suppress(FileNotFoundError):
                self._disk.unlink(path)
            raise

    def _write_recovery_points(self) -> None:
        try:
            self._recovery_points.write(self._topics.values())
        except OSError as error:
            raise self._fail_stop.fail("writing the recovery points", error) from error

    def _require_all(self, manifest: Manifest, directories: set[str]) -> None:
        missing = [name for name in manifest.directory_names if name not in directories]
        if missing:
            raise StorageError(
                f"topic {manifest.name} has lost {', '.join(missing)} from {self._log_dir}: restore it, "
                f"or remove {self._manifest_path(manifest.name)} to give the topic up"
            )

    def _require_unused(self, manifest: Manifest) -> None:
        for name in manifest.directory_names:
            directory = self._log_dir / name
            if self._disk.names(directory):
                raise StorageError(
                    f"topic {manifest.name} can't be created: {directory} holds files of a topic that has no "
                    "manifest; move that directory away"
                )

    def _read_manifest(self, path: Path) -> Manifest:
        return decode_manifest(read_whole(self._disk, path), path)

    def _begin_deletion(self, topic: Topic) -> None:
        gone = self._topics_dir / f"{topic.topic_id}{GONE_SUFFIX}"
        for partition in topic.partitions:
            partition.close(sync=False)
        self._disk.rename(self._manifest_path(topic.name), gone)
        self._being_deleted[topic.name] = gone
        del self._topics[topic.name]

    def _finish_deletion(self, name: str) -> None:
        gone = self._being_deleted[name]
        self._disk.sync_directory(self._topics_dir)
        if gone.name in self._disk.names(self._topics_dir):
            self._remove_topic(gone)
        del self._being_deleted[name]

    def _remove_topic(self, gone: Path) -> None:
        present = set(self._disk.names(self._log_dir))
        for name in sorted(present.intersection(self._read_manifest(gone).directory_names)):
            directory = self._log_dir / name
            for file_name in self._disk.names(directory):
                self._disk.unlink(directory / file_name)
            self._disk.remove_directory(directory)
        self._disk.sync_directory(self._log_dir)
        self._disk.unlink(gone)
        # Were it to come back, it would take a new topic of the same name along.
        self._disk.sync_directory(self._topics_dir)
