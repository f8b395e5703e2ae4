"""How far queries are behind: what the broker has beyond their last finished batch, asked now."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from headrace.driver.status import Offsets, Status
from headrace.errors import ConfigError

ANSWER_S_MAX: Final = 5.0

Place = tuple[str, int]
"""A topic and the number of one of its partitions."""


def places_of(next_offsets: Offsets) -> list[Place]:
    """All partitions that a query reads."""
    return [(topic, partition) for topic, partitions in next_offsets.items() for partition in partitions]


def behind(next_offsets: Offsets, ends: Mapping[Place, int]) -> int:
    """How many records there are from the next offsets to the ends."""
    return sum(
        max(0, ends.get((topic, partition), offset) - offset)
        for topic, partitions in next_offsets.items()
        for partition, offset in partitions.items()
    )


class LagReader:
    """Asks one cluster where topics end. Safe to use from several threads."""

    def __init__(self, bootstrap: str, client_options: Mapping[str, str]) -> None:
        # The client's own log would repeat each refused connection on standard error.
        settings: dict[str, str | int | float | bool] = {
            **client_options,
            "bootstrap.servers": bootstrap,
            "log_level": "0",
        }
        try:
            self._client = AdminClient(settings)
        except KafkaException as error:
            raise ConfigError(f"the client settings are wrong: {error.args[0].str()}") from error

    def lags(self, statuses: Collection[Status]) -> dict[str, int]:
        """By name; those of which the broker has not told in time, or the driver not where they are, lack."""
        places = {place for status in statuses for place in places_of(status.next_offsets)}
        if not places:
            return {}
        asked = self._client.list_offsets(
            {TopicPartition(*place): OffsetSpec.latest() for place in places}, request_timeout=ANSWER_S_MAX
        )
        ends: dict[Place, int] = {}
        for place, future in asked.items():
            try:
                ends[place.topic, place.partition] = future.result(ANSWER_S_MAX).offset
            except (KafkaException, TimeoutError):
                # A topic that was deleted, or a broker that is gone: there is no number to tell.
                continue
        return {
            status.name: behind(status.next_offsets, ends)
            for status in statuses
            if status.next_offsets and ends.keys() >= set(places_of(status.next_offsets))
        }
