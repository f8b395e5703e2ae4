"""All queues of a virtual host, as one message: what AMQP itself has no method for.

    basic.get from `amq.headrace.queues` -> a JSON array, an object for each queue

Nobody can have a queue of that name, because names that begin with `amq.` are the server's own. The
message is made when it is asked for, and need not be acknowledged.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

from headrace.queue.interface import Fetched
from headrace.queue.message import Message
from headrace.queue.metrics import QueueInfo
from headrace.queue.properties import FLAGS

LISTING: Final = "amq.headrace.queues"
_CONTENT_TYPE: Final = b"application/json"
_PROPERTIES: Final = FLAGS.pack(0x8000) + bytes([len(_CONTENT_TYPE)]) + _CONTENT_TYPE


def listing(infos: Iterable[QueueInfo], vhost: str) -> Fetched:
    """The queues of a virtual host, as what a get is answered with."""
    rows = [_row(info) for info in infos if info.vhost == vhost]
    body = json.dumps(rows, default=str).encode()
    message = Message("", LISTING, _PROPERTIES, body)
    return Fetched(delivery_tag=0, redelivered=False, message=message, message_count=0)


def _row(info: QueueInfo) -> dict[str, object]:
    return {
        "queue": info.name,
        "ready": info.ready_count,
        "unacknowledged": info.unacked_count,
        "delayed": info.delayed_count,
        "consumers": info.consumer_count,
        "bytes": info.ready_bytes,
        "oldest_age_ms": info.oldest_age_ms,
        "published": info.published_count,
        "delivered": info.delivered_count,
        "redelivered": info.redelivered_count,
        "acknowledged": info.acked_count,
        "expired": info.expired_count,
        "dropped": info.dropped_count,
        "dead_lettered": info.dead_lettered_count,
        "dead_letters_dropped": info.dead_letters_dropped,
        "durable": info.durable,
        "exclusive": info.exclusive,
        "auto_delete": info.auto_delete,
        "arguments": info.arguments,
    }
