"""A channel, as coroutines over pika's: what it answers, what is confirmed, what its consumers get.

Rules
- What waits for an answer fails as soon as its channel or connection is closed, with the reason: nothing
  hangs.
- `publish` on a channel with confirms returns a future. It succeeds when the server has taken the message,
  and fails when the server refuses it (basic.nack) or knows no queue for it (basic.return, where
  `mandatory`).
- A return does not say which publish it belongs to. It is matched by content with the first one that waits;
  messages that are alike in everything are alike in their fate, too.

Everything belongs to the event loop on which the connection was opened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from pika.spec import Basic, BasicProperties

from headrace.errors import HeadraceError, QueueServerRefused, QueueServerUnavailable
from headrace.queue_clients.delivery import Delivery

CLOSE_S_MAX: Final = 5.0
NO_QUEUE: Final = 404
PRECONDITION_FAILED: Final = 406


class Owner(Protocol):
    """The connection of a channel."""

    address: str

    def explained(self, error: BaseException) -> HeadraceError:
        """What has closed the channel, in our own words."""
        ...


@dataclass(slots=True, kw_only=True)
class Unconfirmed:
    """A message that was published and not confirmed."""

    confirmed: asyncio.Future[None]
    exchange: str
    routing_key: str
    properties: BasicProperties
    body: bytes
    returned: QueueServerRefused | None = None


class QueueChannel:
    """One channel of a connection."""

    def __init__(self, raw: Any, connection: Owner) -> None:
        self._raw = raw
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._error: HeadraceError | None = None
        self._waiting: set[asyncio.Future[Any]] = set()
        self._consumers: dict[str, Consumer] = {}
        self._confirms = False
        self._published_count = 0
        self._unconfirmed: dict[int, Unconfirmed] = {}
        self._got: asyncio.Future[Delivery | None] | None = None
        self.returned: list[QueueServerRefused] = []
        """What came back although nobody waits for it: on a channel without confirms."""
        raw.add_on_close_callback(lambda _channel, error: self.fail(connection.explained(error)))
        raw.add_on_return_callback(self._on_return)
        raw.add_on_cancel_callback(self._on_cancel)
        raw.add_callback(lambda _frame: self._end_get(None), [Basic.GetEmpty], one_shot=False)

    async def confirm(self) -> None:
        """Have the server confirm what is published from now on."""
        self._confirms = True
        await self._call(self._raw.confirm_delivery, self._on_confirm)

    async def declare_queue(
        self,
        name: str,
        *,
        durable: bool = True,
        passive: bool = False,
        exclusive: bool = False,
        arguments: Mapping[str, Any] | None = None,
    ) -> Any:
        """Have a queue, or with `passive` look whether it is there; returns its name and counts."""
        options = {"durable": durable, "passive": passive, "exclusive": exclusive}
        return await self._call(self._raw.queue_declare, name, arguments=dict(arguments or {}), **options)

    async def declare_exchange(
        self,
        name: str,
        kind: str = "direct",
        *,
        durable: bool = True,
        passive: bool = False,
        arguments: Mapping[str, Any] | None = None,
    ) -> None:
        """Have an exchange, or with `passive` look whether it is there."""
        options = {"durable": durable, "passive": passive, "arguments": dict(arguments or {})}
        await self._call(self._raw.exchange_declare, name, kind, **options)

    async def bind(
        self, queue: str, exchange: str, routing_key: str = "", arguments: Mapping[str, Any] | None = None
    ) -> None:
        """Have an exchange feed a queue."""
        await self._call(self._raw.queue_bind, queue, exchange, routing_key, arguments=dict(arguments or {}))

    async def purge(self, queue: str) -> int:
        """Remove what waits in a queue; returns how many messages that were."""
        count: int = (await self._call(self._raw.queue_purge, queue)).message_count
        return count

    async def delete_queue(self, queue: str, *, if_empty: bool = False, if_unused: bool = False) -> int:
        """Delete a queue; returns how many messages were in it."""
        answer = await self._call(self._raw.queue_delete, queue, if_unused=if_unused, if_empty=if_empty)
        count: int = answer.message_count
        return count

    async def set_prefetch(self, count: int) -> None:
        """How many messages the server may send to a consumer ahead of its acknowledgements."""
        await self._call(self._raw.basic_qos, prefetch_count=count)

    async def select_transaction(self) -> None:
        """From now on, publishes and acknowledgements count when they are committed."""
        await self._call(self._raw.tx_select)

    async def commit(self) -> None:
        """Commit what was published and acknowledged; returns when the server has answered."""
        await self._call(self._raw.tx_commit)

    def publish(
        self,
        body: bytes,
        *,
        properties: BasicProperties,
        routing_key: str,
        exchange: str = "",
        mandatory: bool = True,
    ) -> asyncio.Future[None]:
        """Publish; the future is done when the message is confirmed, or at once without confirms."""
        self._check_open()
        confirmed: asyncio.Future[None] = self._loop.create_future()
        # pika drops headers of None and takes the rest as it is.
        self._raw.basic_publish(exchange, routing_key, body, properties, mandatory)
        if not self._confirms:
            confirmed.set_result(None)
            return confirmed
        self._published_count += 1
        self._unconfirmed[self._published_count] = Unconfirmed(
            confirmed=confirmed, exchange=exchange, routing_key=routing_key, properties=properties, body=body
        )
        self.waits_for(confirmed)
        return confirmed

    async def get(self, queue: str) -> Delivery | None:
        """Take the next message out of a queue, to be acknowledged; None where none waits."""
        self._check_open()
        assert self._got is None, "one get after the other"
        self._got = self._loop.create_future()
        self.waits_for(self._got)
        self._raw.basic_get(queue, self._on_get)
        return await self._got

    async def consume(self, queue: str, *, exclusive: bool = False) -> Consumer:
        """Have the server send what comes, as far as the prefetch allows."""
        consumer = Consumer()
        self._check_open()
        answer: asyncio.Future[Any] = self._loop.create_future()
        self.waits_for(answer)
        tag = self._raw.basic_consume(
            queue,
            consumer.on_message,
            exclusive=exclusive,
            callback=lambda frame: fulfil(answer, frame.method),
        )
        self._consumers[tag] = consumer
        await answer
        return consumer

    def ack(self, tag: int, *, multiple: bool = False) -> None:
        """Say that a message is done with; with `multiple`, all that came before it as well."""
        self._check_open()
        self._raw.basic_ack(tag, multiple)

    def nack(self, tag: int, *, multiple: bool = False, requeue: bool = True) -> None:
        """Give a message back, or up."""
        self._check_open()
        self._raw.basic_nack(tag, multiple, requeue)

    async def close(self) -> None:
        """Close; what is not acknowledged goes back to its queue."""
        if self._error is None and self._raw.is_open:
            closed: asyncio.Future[None] = self._loop.create_future()
            self._raw.add_on_close_callback(lambda *_: fulfil(closed, None))
            self._raw.close()
            await asyncio.wait([closed], timeout=CLOSE_S_MAX)

    def waits_for(self, answer: asyncio.Future[Any]) -> None:
        """Let a future fail with the channel."""
        self._waiting.add(answer)
        answer.add_done_callback(self._waiting.discard)

    def fail(self, error: HeadraceError) -> None:
        """The channel is closed: so is all that waits for it."""
        if self._error is None:
            self._error = error
        for answer in tuple(self._waiting):
            fail(answer, self._error)
        self._unconfirmed.clear()
        for consumer in self._consumers.values():
            consumer.fail(self._error)

    def _check_open(self) -> None:
        if self._error is not None:
            raise self._error

    async def _call(self, method: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Call one of pika's methods and return the method that the server answers with."""
        self._check_open()
        answer: asyncio.Future[Any] = self._loop.create_future()
        self.waits_for(answer)
        method(*arguments, callback=lambda frame: fulfil(answer, frame.method), **options)
        return await answer

    def _on_get(self, _channel: object, method: Any, properties: BasicProperties, body: bytes) -> None:
        self._end_get(_delivery(method, properties, body))

    def _end_get(self, delivery: Delivery | None) -> None:
        got, self._got = self._got, None
        if got is not None:
            fulfil(got, delivery)

    def _on_confirm(self, frame: Any) -> None:
        method = frame.method
        tags = [method.delivery_tag]
        if method.multiple:
            tags = [tag for tag in self._unconfirmed if tag <= method.delivery_tag or not method.delivery_tag]
        for tag in tags:
            message = self._unconfirmed.pop(tag, None)
            if message is None:
                continue
            if isinstance(method, Basic.Nack):
                refusal = QueueServerRefused(
                    f"the queue server at {self._connection.address} did not take a message for "
                    f"{_target(message.exchange, message.routing_key)}: the queue may be full",
                    reply_code=PRECONDITION_FAILED,
                )
                fail(message.confirmed, refusal)
            elif message.returned is not None:
                fail(message.confirmed, message.returned)
            else:
                fulfil(message.confirmed, None)

    def _on_return(self, _channel: object, method: Any, properties: BasicProperties, body: bytes) -> None:
        refusal = QueueServerRefused(
            f"no queue takes messages for {_target(method.exchange, method.routing_key)} at "
            f"{self._connection.address}: {method.reply_text} ({method.reply_code})",
            reply_code=method.reply_code,
        )
        if not self._confirms:
            self.returned.append(refusal)
            return
        for message in self._unconfirmed.values():
            if (
                message.returned is None
                and message.body == body
                and message.routing_key == method.routing_key
                and message.exchange == method.exchange
                and message.properties == properties
            ):
                message.returned = refusal
                return

    def _on_cancel(self, frame: Any) -> None:
        consumer = self._consumers.pop(frame.method.consumer_tag, None)
        if consumer is not None:
            consumer.fail(
                QueueServerUnavailable(
                    f"the queue server at {self._connection.address} has cancelled a consumer: its queue was "
                    "deleted, or moved to another node"
                )
            )


class Consumer:
    """What a queue sends, in order. Belongs to the event loop."""

    def __init__(self) -> None:
        self._arrived: asyncio.Queue[Delivery | HeadraceError] = asyncio.Queue()

    async def next(self, within_s: float | None = None) -> Delivery | None:
        """The next message; None where none comes in time. Raises what has closed the channel."""
        try:
            arrived = await asyncio.wait_for(self._arrived.get(), within_s)
        except TimeoutError:
            return None
        return self._taken(arrived)

    def next_now(self) -> Delivery | None:
        """The next message, if one is here already."""
        return None if self._arrived.empty() else self._taken(self._arrived.get_nowait())

    def on_message(self, _channel: object, method: Any, properties: BasicProperties, body: bytes) -> None:
        """Take what pika hands over."""
        self._arrived.put_nowait(_delivery(method, properties, body))

    def fail(self, error: HeadraceError) -> None:
        """Nothing comes any more, for this reason."""
        self._arrived.put_nowait(error)

    def _taken(self, arrived: Delivery | HeadraceError) -> Delivery:
        if isinstance(arrived, HeadraceError):
            self._arrived.put_nowait(arrived)  # for whoever asks next
            raise arrived
        return arrived


def _delivery(method: Any, properties: BasicProperties, body: bytes) -> Delivery:
    return Delivery(
        tag=method.delivery_tag,
        redelivered=method.redelivered,
        exchange=method.exchange,
        routing_key=method.routing_key,
        properties=properties,
        body=body,
    )


def _target(exchange: str, routing_key: str) -> str:
    return f"exchange {exchange} and key {routing_key!r}" if exchange else f"queue {routing_key}"


def fulfil(future: asyncio.Future[Any], value: object) -> None:
    if not future.done():
        future.set_result(value)


def fail(future: asyncio.Future[Any], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
        future.exception()  # it may be that nobody waits any more, which is no mistake
