"""What a dead letter says about its deaths, as RabbitMQ writes it.

The header x-death is an array of tables, the last death first, one for each queue and reason: how often
(count), why (reason), where (queue), when first (time), which exchange and routing keys had brought the
message there, and the time to live that its publisher had given it (original-expiration). The first death is
repeated in x-first-death-reason, -queue and -exchange.

A message that would come to a queue where it died before goes there only if somebody rejected it on the way:
a cycle in which nobody takes part would never end.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Literal

from headrace.queue.fields import write_value
from headrace.queue.message import Message
from headrace.queue.properties import facts_of, headers_of, with_headers

if TYPE_CHECKING:
    from headrace.queue.work_queue import WorkQueue

Reason = Literal["rejected", "expired", "maxlen", "delivery_limit"]
Loss = Literal["not_configured", "no_exchange", "no_route", "cycle", "full"]
"""Why a message that died is in no queue: its own has no dead-letter exchange, or one that is not there, that
leads to no queue, only to queues where it died before, or only to queues that are full and refuse."""
COUNT_MAX: Final = 2**63 - 1
DEATHS_MAX: Final = 64
"""Of queue and reason; beyond, the oldest ones are forgotten."""


def dead_letter(message: Message, queue: WorkQueue, reason: Reason, now_ms: int) -> Message:
    """The copy of a message that goes to the queue's dead-letter exchange."""
    arguments = queue.arguments
    headers = headers_of(message.properties)
    deaths = _with_death(headers.get("x-death"), _death(message, headers, queue, reason, now_ms))
    changes: dict[bytes, bytes | None] = {b"x-death": _write_deaths(deaths)}
    if not isinstance(headers.get("x-death"), list):
        changes[b"x-first-death-reason"] = write_value(reason)
        changes[b"x-first-death-queue"] = write_value(queue.name)
        changes[b"x-first-death-exchange"] = write_value(message.exchange)
    routing_key = arguments.dead_letter_routing_key
    if routing_key is not None:
        changes[b"CC"] = None
    assert message.body is not None
    copy = Message(
        arguments.dead_letter_exchange or "",
        message.routing_key if routing_key is None else routing_key,
        with_headers(message.properties, changes, keeps_expiration=False),
        message.body,
    )
    copy.is_persistent = message.is_persistent
    copy.priority = message.priority
    copy.published_ms = now_ms
    copy.waits_for_disk = True
    return copy


def is_cycle(queue: str, properties: bytes) -> bool:
    """Whether a message that died has been in a queue before, and nobody rejected it since."""
    deaths = headers_of(properties).get("x-death")
    for death in deaths if isinstance(deaths, list) else ():
        # Anything else than a table was put there by a client, so that the cycle is not ours alone.
        if not isinstance(death, dict) or death.get("reason") == "rejected":
            return False
        if death.get("queue") == queue:
            return True
    return False


def extra_routing_keys(headers: dict[str, object], names: tuple[str, ...] = ("CC",)) -> list[str]:
    """Routing keys that a publisher gave in headers, beside the one of the method."""
    keys: list[str] = []
    for name in names:
        given = headers.get(name)
        if isinstance(given, list):
            keys += [key for key in given if isinstance(key, str)]
    return keys


def _death(
    message: Message, headers: dict[str, object], queue: WorkQueue, reason: Reason, now_ms: int
) -> dict[str, object]:
    death: dict[str, object] = {
        "count": 1,
        "reason": reason,
        "queue": queue.name,
        "time": datetime.fromtimestamp(now_ms // 1000, UTC),
        "exchange": message.exchange,
        "routing-keys": [message.routing_key, *extra_routing_keys(headers)],
    }
    expiration_ms = facts_of(message.properties).expiration_ms
    if expiration_ms is not None:
        death["original-expiration"] = str(expiration_ms)
    return death


def _with_death(before: object, death: dict[str, object]) -> list[object]:
    if not isinstance(before, list):
        return [death]
    others: list[object] = []
    for each in before:
        if (
            isinstance(each, dict)
            and each.get("queue") == death["queue"]
            and each.get("reason") == death["reason"]
        ):
            count = each.get("count")
            death = {**each, "count": min(count if isinstance(count, int) else 0, COUNT_MAX - 1) + 1}
        else:
            others.append(each)
    return [death, *others[: DEATHS_MAX - 1]]


def _write_deaths(deaths: list[object]) -> bytes:
    """The same as any array, but that counts are 64 bits wide, as clients know them."""
    parts = []
    for death in deaths:
        if isinstance(death, dict) and isinstance(death.get("count"), int):
            fields = [
                (name.encode("utf-8", "surrogateescape"), write_value(value))
                for name, value in death.items()
                if name != "count"
            ]
            count = b"l" + min(int(death["count"]), COUNT_MAX).to_bytes(8, "big", signed=True)
            body = b"".join(bytes((len(n),)) + n + v for n, v in ((b"count", count), *fields))
            parts.append(b"F" + len(body).to_bytes(4, "big") + body)
        else:
            parts.append(write_value(death))
    array = b"".join(parts)
    return b"A" + len(array).to_bytes(4, "big") + array
