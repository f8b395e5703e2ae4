"""Where topics lie on disk, and the order in which they are written and removed.

    topics/<topic>.json      a topic's manifest
    topics/<topic id>.gone   the manifest of a topic that is being deleted
    log/<topic>-<number>/    a partition's segments

The manifest is what makes a topic. Creating one makes the partitions' directories first and the manifest
last, and so does adding partitions; deleting one renames the manifest first and removes the directories
after. When a crash comes between, the next start goes on with it. Directories that no manifest names are
never touched: an empty one is taken over when its partition is made, one with files in it is an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.errors import StorageError
from headrace.failpoints import hit
from headrace.log.durable_file import TEMPORARY_NAME, make_directory_durably, read_whole, write_durably
from headrace.log.topic import decode_manifest, encode_manifest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from uuid import UUID

    from headrace.log.disk import Disk
    from headrace.log.topic import Manifest

MANIFEST_SUFFIX: Final = ".json"
GONE_SUFFIX: Final = ".gone"


class TopicFiles:
    """The topics of one data directory, as files. One thread at a time; methods raise OSError."""

    def __init__(self, data_dir: Path, disk: Disk) -> None:
        self.log_dir = data_dir / "log"
        self._topics_dir = data_dir / "topics"
        self._disk = disk

    def open(self) -> None:
        """Make the directories, and finish what a crash has left half done."""
        for directory in (self.log_dir, self._topics_dir):
            make_directory_durably(self._disk, directory)
            # A process that was killed may have left names in it that were never synced.
            self._disk.sync_directory(directory)
        names = self._disk.names(self._topics_dir)
        if TEMPORARY_NAME in names:
            self._disk.unlink(self._topics_dir / TEMPORARY_NAME)
        for name in names:
            if name.endswith(GONE_SUFFIX):
                self._remove(self._topics_dir / name)

    def manifests(self) -> Iterator[Manifest]:
        """What is written down about each topic. Raises StorageError where a partition has vanished."""
        directories = set(self._disk.names(self.log_dir))
        for name in self._disk.names(self._topics_dir):
            if name.endswith(MANIFEST_SUFFIX):
                manifest = self._read(self._topics_dir / name)
                self._require_all(manifest, directories)
                yield manifest

    def add(self, manifest: Manifest, *, first_partition: int = 0) -> None:
        """Make the directories of a topic's partitions, from this one on; they don't count before `write`."""
        names = manifest.directory_names[first_partition:]
        for name in names:
            self._require_unused(manifest.name, self.log_dir / name)
        for name in names:
            self._disk.make_directory(self.log_dir / name)
        self._disk.sync_directory(self.log_dir)
        hit("store.topic.create")

    def write(self, manifest: Manifest) -> None:
        """Write a topic's manifest: once this returns, it is so. After OpenRefused, it is as before."""
        write_durably(self._disk, self._manifest_path(manifest.name), encode_manifest(manifest))
        hit("store.topic.created")

    def delete(self, name: str, topic_id: UUID) -> None:
        """Remove a topic with all of its data. After OpenRefused, another call goes on with it."""
        manifest = self._manifest_path(name)
        gone = self._topics_dir / f"{topic_id}{GONE_SUFFIX}"
        names = self._disk.names(self._topics_dir)
        if manifest.name in names and gone.name not in names:
            self._disk.rename(manifest, gone)
            hit("store.topic.delete")
            names = [gone.name]
        self._disk.sync_directory(self._topics_dir)
        if gone.name in names:
            self._remove(gone)

    def _manifest_path(self, name: str) -> Path:
        return self._topics_dir / f"{name}{MANIFEST_SUFFIX}"

    def _read(self, path: Path) -> Manifest:
        return decode_manifest(read_whole(self._disk, path), path)

    def _require_all(self, manifest: Manifest, directories: set[str]) -> None:
        missing = [name for name in manifest.directory_names if name not in directories]
        if missing:
            raise StorageError(
                f"topic {manifest.name} has lost {', '.join(missing)} from {self.log_dir}: restore it, "
                f"or remove {self._manifest_path(manifest.name)} to give the topic up"
            )

    def _require_unused(self, topic: str, directory: Path) -> None:
        if self._disk.names(directory):
            raise StorageError(
                f"topic {topic} can't have {directory.name}: {directory} holds files of a topic that has no "
                "manifest; move that directory away"
            )

    def _remove(self, gone: Path) -> None:
        present = set(self._disk.names(self.log_dir))
        for name in sorted(present.intersection(self._read(gone).directory_names)):
            directory = self.log_dir / name
            for file_name in self._disk.names(directory):
                self._disk.unlink(directory / file_name)
            self._disk.remove_directory(directory)
        self._disk.sync_directory(self.log_dir)
        self._disk.unlink(gone)
        # Were it to come back, it would take a new topic of the same name along.
        self._disk.sync_directory(self._topics_dir)
