"""What can be told of a queue: its depth, what is held, and what has happened since the broker started."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.queue.dead_letters import Loss
    from headrace.queue.work_queue import WorkQueue


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueInfo:
    """One queue. Counts grow from 0 at the broker's start; rates are theirs over time."""

    vhost: str
    name: str
    durable: bool
    exclusive: bool
    auto_delete: bool
    arguments: dict[str, object]
    ready_count: int
    unacked_count: int
    delayed_count: int
    """Given back, and waiting until they are to be tried again."""
    ready_bytes: int
    consumer_count: int
    oldest_age_ms: int | None
    """How long ago the first ready message was published; None where that is not known."""
    published_count: int
    delivered_count: int
    redelivered_count: int
    acked_count: int
    expired_count: int
    dropped_count: int
    dead_lettered_count: int
    """Those that died and came to another queue."""
    dead_letters_dropped: dict[Loss, int]
    """Those that died and are nowhere, by why that is (see `Loss`)."""


def queue_info(vhost: str, queue: WorkQueue, now_ms: int) -> QueueInfo:
    """What can be told of a queue now."""
    oldest_ms = queue.oldest_published_ms()
    counts = queue.counts
    return QueueInfo(
        vhost=vhost,
        name=queue.name,
        durable=queue.durable,
        exclusive=queue.owner is not None,
        auto_delete=queue.auto_delete,
        arguments=queue.given,
        ready_count=queue.count,
        unacked_count=len(queue.unacked),
        delayed_count=queue.delayed_count,
        ready_bytes=queue.body_bytes,
        consumer_count=len(queue.consumers.all),
        oldest_age_ms=None if oldest_ms is None else max(0, now_ms - oldest_ms),
        published_count=counts.published,
        delivered_count=counts.delivered,
        redelivered_count=counts.redelivered,
        acked_count=counts.acked,
        expired_count=counts.expired,
        dropped_count=counts.dropped,
        dead_lettered_count=counts.dead_lettered,
        dead_letters_dropped=dict(counts.dead_letters_dropped),
    )
