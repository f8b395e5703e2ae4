"""A consumer's side of a fetch session: it names what has changed since its last request, and no more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kio.schema.errors import ErrorCode

from headrace.kafka.messages.fetch import FetchPartition, FetchTopic, ForgottenTopic

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headrace.testing.simulation.topics import Partition, TopicInfo

FIRST_VERSION: Final = 7
NO_SESSION: Final = (0, -1)
GONE: Final = frozenset(
    {
        ErrorCode.fetch_session_id_not_found,
        ErrorCode.invalid_fetch_session_epoch,
        ErrorCode.fetch_session_topic_id_error,
    }
)


class Asked(NamedTuple):
    """What a request says about its session and its partitions."""

    session_id: int
    session_epoch: int
    topics: tuple[FetchTopic, ...]
    forgotten: tuple[ForgottenTopic, ...]


class FetchSession:
    """Knows what the broker knows. After anything unexpected, begin anew."""

    def __init__(self, *, is_used: bool) -> None:
        self._is_used = is_used
        self._session_id = 0
        self._epoch = 0
        self._known: dict[Partition, int] = {}

    def ask(self, positions: Mapping[Partition, int], size_bytes_max: int) -> Asked:
        """What to send to fetch from these positions."""
        if not self._is_used:
            return Asked(*NO_SESSION, _topics(positions, size_bytes_max), ())
        if self._epoch == 0:
            self._known = dict(positions)
            return Asked(self._session_id, 0, _topics(positions, size_bytes_max), ())
        changed = {each: at for each, at in positions.items() if self._known.get(each) != at}
        forgotten = [each for each in self._known if each not in positions]
        self._known = dict(positions)
        return Asked(self._session_id, self._epoch, _topics(changed, size_bytes_max), _forgotten(forgotten))

    def heard(self, session_id: int) -> None:
        """An answer came, which names the session."""
        if session_id == 0:
            self.begin_anew()
        else:
            self._session_id = session_id
            self._epoch += 1

    def begin_anew(self) -> None:
        """Nobody knows what the broker knows."""
        self._session_id = self._epoch = 0


def _topics(positions: Mapping[Partition, int], size_bytes_max: int) -> tuple[FetchTopic, ...]:
    by_topic: dict[TopicInfo, list[FetchPartition]] = {}
    for partition, position in positions.items():
        asked = FetchPartition(
            partition=partition.index, fetch_offset=position, partition_max_bytes=size_bytes_max
        )
        by_topic.setdefault(partition.topic, []).append(asked)
    return tuple(
        FetchTopic(topic=topic.name, topic_id=topic.topic_id, partitions=tuple(partitions))
        for topic, partitions in by_topic.items()
    )


def _forgotten(partitions: Iterable[Partition]) -> tuple[ForgottenTopic, ...]:
    return tuple(
        ForgottenTopic(topic=each.topic.name, topic_id=each.topic.topic_id, partitions=(each.index,))
        for each in partitions
    )
