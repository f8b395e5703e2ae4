"""Where the topics end: asks the broker, by protocol, through an admin client.

It asks about topics by name in a way that never creates them, so a console that is started first leaves no
trace on the broker.
"""

from __future__ import annotations

import concurrent.futures
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from headrace.console.client_errors import reason
from headrace.errors import BrokerUnavailable

if TYPE_CHECKING:
    import threading
    from collections.abc import Mapping

    from confluent_kafka.admin import TopicDescription

REQUEST_S_MAX: Final = 2.0
STOP_CHECK_S: Final = 0.05

Offsets = dict[int, int]
"""One offset per partition of a topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicEnds:
    """A topic, and where each of its partitions ends."""

    topic_id: str
    """Another topic of the same name has another id; brokers that don't know ids give the same to all."""
    ends: Offsets

    def is_other_than(self, before: TopicEnds) -> bool:
        """Whether the topic was made anew: its id differs, or a partition ends earlier or is gone."""
        went_back = any(self.ends.get(partition, -1) < end for partition, end in before.ends.items())
        return self.topic_id != before.topic_id or went_back


def places(measured: Mapping[str, TopicEnds]) -> dict[tuple[str, int], int]:
    """Where each partition of some topics ends."""
    return {
        (topic, partition): end for topic, found in measured.items() for partition, end in found.ends.items()
    }


class Stopped(Exception):
    """The console is closing: nobody waits for the answer any more."""


class Meter:
    """Asks one broker. To be used from one thread; `stop` may be set from another."""

    def __init__(self, settings: Mapping[str, str | int | float | bool], stop: threading.Event) -> None:
        self._admin = AdminClient(dict(settings))
        self._stop = stop

    def ends(self, topics: tuple[str, ...]) -> dict[str, TopicEnds]:
        """Where those topics end that exist. Raises BrokerUnavailable, or Stopped."""
        descriptions = self._descriptions(topics)
        partitions = [
            TopicPartition(topic, partition.id)
            for topic, description in descriptions.items()
            for partition in description.partitions
        ]
        offsets = self._offsets(partitions, OffsetSpec.latest())
        return {
            topic: TopicEnds(
                topic_id=str(description.topic_id),
                ends={p.partition: offset for p, offset in offsets.items() if p.topic == topic},
            )
            for topic, description in descriptions.items()
        }

    def firsts(self, topic: str, partitions: list[int]) -> Offsets:
        """The first offset that each partition still holds. Raises BrokerUnavailable, or Stopped."""
        wanted = [TopicPartition(topic, partition) for partition in partitions]
        offsets = self._offsets(wanted, OffsetSpec.earliest())
        return {partition.partition: offset for partition, offset in offsets.items()}

    def _descriptions(self, topics: tuple[str, ...]) -> dict[str, TopicDescription]:
        answers = self._admin.describe_topics(
            TopicCollection(list(dict.fromkeys(topics))), request_timeout=REQUEST_S_MAX
        )
        found: dict[str, TopicDescription] = {}
        for topic, answer in answers.items():
            try:
                found[topic] = self._answer(answer)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise BrokerUnavailable(reason(error.args[0])) from error
        return found

    def _offsets(self, partitions: list[TopicPartition], spec: OffsetSpec) -> dict[TopicPartition, int]:
        if not partitions:
            return {}
        answers = self._admin.list_offsets(dict.fromkeys(partitions, spec), request_timeout=REQUEST_S_MAX)
        try:
            return {partition: self._answer(answer).offset for partition, answer in answers.items()}
        except KafkaException as error:
            raise BrokerUnavailable(reason(error.args[0])) from error

    def _answer(self, answer: concurrent.futures.Future[Any]) -> Any:
        """Wait for an answer, but not when the console closes."""
        while not self._stop.is_set():
            if concurrent.futures.wait([answer], timeout=STOP_CHECK_S).done:
                return answer.result()
        raise Stopped
