"""What the feed tells the board. The feed watches the broker on threads of its own; these values are all
that crosses over to the event loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.console.decode import AlertRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsRead:
    """Records of the alerts topic, in the order of their partitions."""

    records: tuple[AlertRecord, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsMeasured:
    """The broker answered: where each topic ends, summed over partitions. None: there is no such topic."""

    input_end: int | None
    alerts_end: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLost:
    """The broker does not answer."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedFailed:
    """The feed met something that it can't recover from by itself, and has ended."""

    reason: str


Observation = RecordsRead | TopicsMeasured | BrokerLost | FeedFailed
