"""The alerts topic, counted from its beginning, so that the page's own counts can be checked against it.

It shares nothing with what counts alerts as they come but the way to decode one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.console.decode import AlertRecord, Undecodable, decode

if TYPE_CHECKING:
    from confluent_kafka import Message

    from headrace.console.catalog import KafkaCatalog


class Tally:
    """Counts records and the ids that they have."""

    def __init__(self) -> None:
        self.record_count = 0
        self.undecodable_count = 0
        self.unnamed_count = 0
        self._alert_ids: set[str] = set()

    def take(self, key: bytes | None, value: bytes | None) -> None:
        """Count one record."""
        self.record_count += 1
        content, alert_id = decode(
            AlertRecord(
                partition=0, offset=0, key=key, value=value, timestamp_ms=None, received_ms=0, live=False
            )
        )
        if alert_id is not None:
            self._alert_ids.add(alert_id)
        elif isinstance(content, Undecodable):
            self.undecodable_count += 1
        else:
            self.unnamed_count += 1

    def as_json(self) -> dict[str, Any]:
        """What was counted: each record is of one alert, has no id, or can't be decoded."""
        alert_count = len(self._alert_ids) + self.unnamed_count
        return {
            "record_count": self.record_count,
            "alert_count": alert_count,
            "repeat_count": self.record_count - alert_count - self.undecodable_count,
            "undecodable_count": self.undecodable_count,
        }


def recount(catalog: KafkaCatalog, topic: str) -> dict[str, Any]:
    """Read the whole topic and count; `is_complete` is false where that took too long."""
    tally = Tally()

    def take(message: Message) -> None:
        tally.take(message.key(), message.value())

    is_complete = catalog.read_all(topic, take)
    return {**tally.as_json(), "is_complete": is_complete}
