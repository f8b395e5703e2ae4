"""Moves dead letters back to work.

    get from the queue → does it pass the filter? → publish a copy → confirmed → acknowledge the original

- The copy is safe before the original goes. Whoever stops this, by Ctrl-C or kill -9, loses nothing: what
  is not acknowledged goes back to the queue. What was published in that moment may be there twice, the
  copy with the same message id.
- Only what is in the queue at the beginning is looked at, so that what dies again at once is not sent in
  circles.
- What does not pass stays unacknowledged until the end and then returns to its place. Servers flag it as
  redelivered.
- A copy goes to the queue in which the message died last, and only there: other queues that its exchange
  feeds have had theirs. A copy that no queue takes is not acknowledged, and counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from headrace.errors import ConfigError, QueueServerRefused
from headrace.failpoints import hit
from headrace.queue_clients.channel import NO_QUEUE, QueueChannel
from headrace.queue_clients.connection import QueueConnection
from headrace.queue_clients.deaths import cause_of, deaths_of, sent_back
from headrace.queue_clients.delivery import Delivery, copied
from headrace.queue_clients.redrive_filter import RedriveFilter

WINDOW: Final = 100
"""How many copies are on their way to the server at once."""
PREVIEW_BYTES_MAX: Final = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Redrive:
    """What to move, and where to."""

    queue: str
    to_queue: str | None = None
    """Where all go; None: each to the queue in which it died last."""
    to_exchange: str | None = None
    """Publish to this exchange instead, with the key that the message had when it died."""
    which: RedriveFilter = field(default_factory=RedriveFilter)
    limit: int | None = None
    dry_run: bool = False

    def __post_init__(self) -> None:
        if self.to_queue is not None and self.to_exchange is not None:
            raise ConfigError(
                "dead letters go to a queue or to an exchange: use --to or --to-exchange, not both"
            )
        if self.to_queue == self.queue:
            raise ConfigError(f"dead letters of {self.queue} can't go to {self.queue}: name another queue")

    def target_of(self, delivery: Delivery) -> tuple[str, str] | None:
        """Exchange and routing key of the copy; None where it can't be told from the message."""
        deaths = deaths_of(delivery.headers)
        if self.to_exchange is not None:
            keys = deaths[0].routing_keys if deaths else ()
            return self.to_exchange, keys[0] if keys else delivery.routing_key
        if self.to_queue is not None:
            return "", self.to_queue
        if not deaths or deaths[0].queue == self.queue:
            return None
        return "", deaths[0].queue


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """What is shown of one that passes."""

    number: int
    message_id: str | None
    reason: str | None
    origin: str | None
    routing_key: str | None
    died_at: str | None
    cause: str | None
    to: str | None
    preview: str


@dataclass(slots=True, kw_only=True)
class RedriveResult:
    """What was done."""

    looked_at: int = 0
    passed: int = 0
    moved: int = 0
    kept: int = 0
    """Passed, and are still there: nobody knows where they go, or no queue took them."""
    problems: list[str] = field(default_factory=list)
    """Why, each reason once."""


async def redrive(
    connection: QueueConnection, asked: Redrive, show: Callable[[DeadLetter], None] | None = None
) -> RedriveResult:
    """Move dead letters back; with `dry_run`, only look at them. `show` sees each that passes."""
    source, target = await connection.channel(), await connection.channel(confirms=True)
    moving = _Moving(source, target, asked)
    for _ in range(await _waiting_count(source, asked.queue)):
        if asked.limit is not None and moving.result.passed >= asked.limit:
            break
        delivery = await source.get(asked.queue)
        if delivery is None:
            break
        letter = await moving.take(delivery)
        if letter is not None and show is not None:
            show(letter)
    await moving.finish()
    # What is left unacknowledged returns to its place.
    await source.close()
    await target.close()
    return moving.result


async def _waiting_count(channel: QueueChannel, queue: str) -> int:
    try:
        count: int = (await channel.declare_queue(queue, passive=True)).message_count
    except QueueServerRefused as error:
        if error.reply_code == NO_QUEUE:
            raise ConfigError(
                f"there is no queue {queue}: `headrace queues list` shows what is there"
            ) from error
        raise
    return count


class _Moving:
    """Copies on their way, and what becomes of their originals."""

    def __init__(self, source: QueueChannel, target: QueueChannel, asked: Redrive) -> None:
        self.result = RedriveResult()
        self._source = source
        self._target = target
        self._asked = asked
        self._on_their_way: set[asyncio.Task[None]] = set()

    async def take(self, delivery: Delivery) -> DeadLetter | None:
        """Decide about one; what it is shown as, if it passes."""
        self.result.looked_at += 1
        if not self._asked.which.passes(delivery):
            return None
        self.result.passed += 1
        target = self._asked.target_of(delivery)
        letter = _shown(self.result.passed, delivery, target)
        if target is None:
            self._keep(
                f"message {letter.message_id or letter.number} does not say in which queue it died: "
                "name one with --to"
            )
        elif not self._asked.dry_run:
            await self._send(delivery, *target)
        return letter

    async def finish(self) -> None:
        """Wait for what is on its way."""
        await self._done_of(asyncio.ALL_COMPLETED)

    async def _send(self, delivery: Delivery, exchange: str, routing_key: str) -> None:
        if len(self._on_their_way) >= WINDOW:
            await self._done_of(asyncio.FIRST_COMPLETED)
        properties = copied(delivery.properties, headers=sent_back(delivery.headers))
        confirmed = self._target.publish(
            delivery.body, properties=properties, exchange=exchange, routing_key=routing_key
        )
        self._on_their_way.add(asyncio.ensure_future(self._acknowledge(delivery.tag, confirmed)))

    async def _acknowledge(self, tag: int, confirmed: asyncio.Future[None]) -> None:
        try:
            await confirmed
        except QueueServerRefused as error:
            if error.reply_code == NO_QUEUE:
                raise  # the exchange is not there, so that the channel is closed
            self._keep(str(error))
            return
        hit("redrive.confirmed")
        self._source.ack(tag)
        self.result.moved += 1

    async def _done_of(self, when: str) -> None:
        if not self._on_their_way:
            return
        done, self._on_their_way = await asyncio.wait(self._on_their_way, return_when=when)
        if any(each.exception() for each in done):
            # It has failed with its channel, and with it all that are on their way.
            await asyncio.gather(*self._on_their_way, return_exceptions=True)
        for each in done:
            each.result()

    def _keep(self, problem: str) -> None:
        self.result.kept += 1
        if problem not in self.result.problems:
            self.result.problems.append(problem)


def _shown(number: int, delivery: Delivery, target: tuple[str, str] | None) -> DeadLetter:
    deaths = deaths_of(delivery.headers)
    last = deaths[0] if deaths else None
    died_at = last.died_at if last is not None else None
    return DeadLetter(
        number=number,
        message_id=delivery.message_id,
        reason=last.reason if last is not None else None,
        origin=last.queue if last is not None else None,
        routing_key=last.routing_keys[0] if last is not None and last.routing_keys else None,
        died_at=died_at.isoformat() if died_at is not None else None,
        cause=cause_of(delivery.headers),
        to=None if target is None else f"{target[0]}/{target[1]}" if target[0] else target[1],
        preview=delivery.body[:PREVIEW_BYTES_MAX].decode(errors="replace"),
    )
