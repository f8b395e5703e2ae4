"""The topics of a store, and how they are created, grown, configured and deleted.

Each change comes in two steps, the one that waits for the disk on another thread (see change.py). A topic is
there, as it was or as it is now, or it is not: nobody sees one that is half made, and one that is being
deleted is gone from the moment at which its deletion begins. When file descriptors are wanting, a deletion
stops where it is, and the next call for that topic goes on with it.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol, TypeVar

from headrace.config import check_topic_name
from headrace.errors import ConfigError, TopicExists, UnknownTopic, UsageError
from headrace.log.change import Change
from headrace.log.topic import Manifest, Topic
from headrace.log.topic_settings import TopicSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from threading import Lock
    from uuid import UUID

    from headrace.log.failure import FailStop
    from headrace.log.partition import PartitionLog
    from headrace.log.topic_files import TopicFiles

Result = TypeVar("Result")


class OpenTopic(Protocol):
    """Opens the partitions of a topic. Runs on any thread where all but the known ones are new."""

    def __call__(self, manifest: Manifest, known: tuple[PartitionLog, ...] = ()) -> Topic:
        """A topic with its partitions; those that are known are open already."""
        ...


class TopicCatalog:
    """All topics. Used from one thread, the event loop, but for `Change.run`, which may run in another."""

    def __init__(
        self,
        files: TopicFiles,
        open_topic: OpenTopic,
        *,
        defaults: TopicSettings,
        changes_lock: Lock,
        fail_stop: FailStop,
        new_id: Callable[[], UUID],
    ) -> None:
        self._files = files
        self._open_topic = open_topic
        self._changes_lock = changes_lock
        self._fail_stop = fail_stop
        self._new_id = new_id
        self._topics: dict[str, Topic] = {}
        self._topics_by_id: dict[UUID, Topic] = {}
        self._partition_count = 0
        self._changing: dict[str, int] = {}
        """The topics that are being changed, with the number of partitions that this will add."""
        self._creating: set[str] = set()
        self._being_deleted: dict[str, _Deletion] = {}
        """By name, the topics whose files may not all be gone yet."""
        self.topics: Mapping[str, Topic] = MappingProxyType(self._topics)
        """All topics by name."""
        self.topics_by_id: Mapping[UUID, Topic] = MappingProxyType(self._topics_by_id)
        """The same by their ids."""
        self.defaults = defaults
        """What holds for a topic for which nobody set anything."""

    @property
    def topic_count(self) -> int:
        """How many topics there are, those that are being created included."""
        return len(self._topics) + len(self._creating)

    @property
    def partition_count(self) -> int:
        """How many partitions there are, those that are being created included."""
        return self._partition_count + sum(self._changing.values())

    def partitions(self) -> Iterator[PartitionLog]:
        """All partitions of all topics."""
        return (partition for topic in self._topics.values() for partition in topic.partitions)

    def show(self, topic: Topic) -> Topic:
        """Let everybody see a topic, with the settings that hold for it now."""
        # The defaults may have been changed since the topic was opened.
        self._apply_settings(topic)
        before = self._topics.get(topic.name)
        self._partition_count += len(topic.partitions) - (0 if before is None else len(before.partitions))
        self._topics[topic.name] = self._topics_by_id[topic.topic_id] = topic
        return topic

    def check_defaults(self, defaults: TopicSettings) -> None:
        """Raise ConfigError where a topic's own settings don't go with these defaults."""
        for topic in self._topics.values():
            TopicSettings.parse(topic.config, defaults)

    def change_defaults(self, defaults: TopicSettings) -> None:
        """Let other defaults hold from now on."""
        self.defaults = defaults
        for topic in self._topics.values():
            self._apply_settings(topic)

    def begin_creation(
        self, name: str, partition_count: int, config: Mapping[str, str] | None = None
    ) -> Change[Topic]:
        """Make a topic. Raises ConfigError, or TopicExists."""
        check_topic_name(name)
        TopicSettings.parse(config or {}, self.defaults)
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
            self._files.add(manifest)
            topic = self._open_topic(manifest)
            self._files.write(manifest)
            return lambda: publish(topic)

        def publish(topic: Topic) -> Topic:
            self._being_deleted.pop(name, None)
            return self.show(topic)

        change = self._change(name, "creating topic", work, new_partition_count=partition_count)
        self._creating.add(name)
        return change

    def begin_deletion(self, name: str) -> Change[None]:
        """Remove a topic with all of its data: it is gone for everybody at once."""
        topic = self._topics.get(name)
        deletion = self._being_deleted.get(name) if topic is None else _Deletion(topic, self._files)
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
            self._files.add(manifest, first_partition=first_new)
            grown = self._open_topic(manifest, known=topic.partitions)
            self._files.write(manifest)
            return lambda: self.show(grown)

        return self._change(
            name, "adding partitions to topic", work, new_partition_count=partition_count - first_new
        )

    def begin_reconfiguration(self, name: str, config: Mapping[str, str]) -> Change[Topic]:
        """Give a topic these settings in place of the ones that it has. Raises ConfigError for a bad one."""
        topic = self._topic(name)
        TopicSettings.parse(config, self.defaults)
        self._fail_stop.check()
        manifest = _manifest(topic, config=config)

        def work() -> Callable[[], Topic]:
            self._files.write(manifest)
            return publish

        def publish() -> Topic:
            return self.show(replace(topic, config=MappingProxyType(dict(config))))

        return self._change(name, "changing the settings of topic", work)

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

    def _topic(self, name: str) -> Topic:
        topic = self._topics.get(name)
        if topic is None:
            raise UnknownTopic(f"there is no topic {name}")
        return topic

    def _apply_settings(self, topic: Topic) -> None:
        settings = TopicSettings.parse(topic.config, self.defaults)
        for partition in topic.partitions:
            partition.change_settings(settings)

    def _hide(self, name: str) -> None:
        topic = self._topics.pop(name, None)
        if topic is not None:
            del self._topics_by_id[topic.topic_id]
            self._partition_count -= len(topic.partitions)


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
