"""The alerts topic, counted from its beginning, so that the page's own counts can be checked against it.

It shares nothing with what counts alerts as they come but the way to decode one. Ids are kept as digests of
16 bytes, ID_COUNT_MAX at most: of a topic that has more, the count is of what was read until then.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from headrace.console.decode import AlertRecord, Undecodable, decode

if TYPE_CHECKING:
    from confluent_kafka import Message

    from headrace.console.catalog import KafkaCatalog

ID_COUNT_MAX: Final = 500_000
"""About 50 MB of memory."""


class TooManyIds(Exception):
    """A record has an id that there is no room for."""


class Tally:
    """Counts records and the ids that they have."""

    def __init__(self, id_count_max: int = ID_COUNT_MAX) -> None:
        self._id_count_max = id_count_max
        self.record_count = 0
        self.undecodable_count = 0
        self.unnamed_count = 0
        self.withdrawn_count = 0
        self.deleted_count = 0
        self._digests: set[bytes] = set()

    def take(self, key: bytes | None, value: bytes | None) -> None:
        """Count one record. Raises TooManyIds, and does not count it, where there is no room for its id."""
        if value is None:
            self.deleted_count += 1
            self.record_count += 1
            return
        content, alert_id = decode(
            AlertRecord(
                partition=0, offset=0, key=key, value=value, timestamp_ms=None, received_ms=0, live=False
            )
        )
        if isinstance(content, Undecodable):
            self.undecodable_count += 1
        elif not content.holds and (alert_id is None or _digest(alert_id) not in self._digests):
            self.withdrawn_count += 1
        elif alert_id is not None:
            self._remember(_digest(alert_id))
        else:
            self.unnamed_count += 1
        self.record_count += 1

    def _remember(self, digest: bytes) -> None:
        if len(self._digests) >= self._id_count_max and digest not in self._digests:
            raise TooManyIds
        self._digests.add(digest)

    def as_json(self) -> dict[str, Any]:
        """What was counted: each record is an alert, one that comes again, withdraws what was not there, says
        that what had its key is gone, or can't be decoded."""
        alert_count = len(self._digests) + self.unnamed_count
        others = self.withdrawn_count + self.deleted_count + self.undecodable_count
        return {
            "record_count": self.record_count,
            "alert_count": alert_count,
            "repeat_count": self.record_count - alert_count - others,
            "withdrawn_count": self.withdrawn_count,
            "deleted_count": self.deleted_count,
            "undecodable_count": self.undecodable_count,
        }


def _digest(alert_id: str) -> bytes:
    return blake2b(alert_id.encode("utf-8", errors="surrogatepass"), digest_size=16).digest()


def recount(catalog: KafkaCatalog, topic: str) -> dict[str, Any]:
    """Read the whole topic and count; `is_complete` is false where that took too long or too much memory."""
    tally = Tally()

    def take(message: Message) -> None:
        tally.take(message.key(), message.value())

    try:
        is_complete = catalog.read_all(topic, take)
    except TooManyIds:
        is_complete = False
    return {**tally.as_json(), "is_complete": is_complete}
