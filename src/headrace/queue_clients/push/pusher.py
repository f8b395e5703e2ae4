"""Pushes a queue's messages to a URL.

    take a message → POST → 2xx → acknowledge
                        └→ try again, with pauses → given up → dead letter, confirmed → acknowledge

- At least once: killed between the answer and the acknowledgement, the message comes again, with the same
  webhook-id where it has a message id.
- A message that waits for its next attempt is held unacknowledged and takes one of the `concurrency` places.
  So a receiver that is down is not asked by more and more requests, and no message is lost with the process.
- Order is not kept: messages are under way side by side.
- Only the URL that was given is asked: proxies of the environment are not used. Redirects are followed only
  if that is allowed, only within the origin, and only those that repeat the request as it is (307, 308).
"""

from __future__ import annotations

import asyncio
import logging
import random
import uuid
from typing import TYPE_CHECKING, Final

import httpx

from headrace.failpoints import hit
from headrace.logs import fields
from headrace.queue_clients.channel import QueueChannel
from headrace.queue_clients.connection import QueueConnection
from headrace.queue_clients.dead_letters import DeadLetters
from headrace.queue_clients.push.metrics import PushMetrics
from headrace.queue_clients.push.request import check_headers, key_of, request_headers
from headrace.queue_clients.push.retry import Verdict, judged, pause_s
from headrace.queue_clients.running import keep_running, waited

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.clock import Clock
    from headrace.config import PushConfig
    from headrace.queue_clients.delivery import Delivery

WAIT_S_MAX: Final = 0.5
"""How long nothing may come before somebody looks whether to stop."""
REDIRECT_COUNT_MAX: Final = 5
PUSH_FAILED: Final = "push-failed"
_REPEATED: Final = frozenset({307, 308})

_logger: Final = logging.getLogger(__name__)


class Pusher:
    """Pushes one queue. Belongs to an event loop."""

    def __init__(
        self,
        config: PushConfig,
        clock: Clock,
        *,
        metrics: PushMetrics | None = None,
        on_ready: Callable[[], None] = lambda: None,
    ) -> None:
        check_headers(config.headers)
        key_of(config.secret)
        self._config = config
        self._clock = clock
        self._on_ready = on_ready
        self._stopping = asyncio.Event()
        self._ready_count = 0
        self.metrics = metrics or PushMetrics(config.queue)

    def stop(self) -> None:
        """End when the requests that are under way are answered; what waits to be tried again goes back."""
        self._stopping.set()

    async def keep_running(self) -> None:
        """Run until stopped, also where the queue server is gone for a while."""
        name = f"push of {self._config.queue}"
        await keep_running(name, self.run, self._stopping, lambda: self._ready_count)

    async def run(self) -> None:
        """Run until stopped, or until something fails."""
        config = self._config
        name = f"headrace push {config.queue}"
        limits = httpx.Limits(max_connections=config.concurrency)
        async with (
            await QueueConnection.open(config.url, name=name) as connection,
            httpx.AsyncClient(timeout=config.timeout_s, limits=limits, trust_env=False) as client,
        ):
            try:
                await self._push_all(connection, client)
            finally:
                self.metrics.set_connected(False)

    async def _push_all(self, connection: QueueConnection, client: httpx.AsyncClient) -> None:
        config = self._config
        publishing = await connection.channel(confirms=True)
        channel = await connection.channel()
        await channel.declare_queue(config.queue, passive=True)
        await publishing.declare_queue(config.dead_letter_queue)
        dead_letters = DeadLetters(publishing, config.dead_letter_queue, origin=config.queue)
        await channel.set_prefetch(config.concurrency)
        consumer = await channel.consume(config.queue)
        self.metrics.set_connected(True)
        self._ready_count += 1
        self._on_ready()
        tasks: set[asyncio.Task[None]] = set()
        try:
            while not self._stopping.is_set():
                delivery = await consumer.next(WAIT_S_MAX)
                if delivery is not None:
                    delivering = self._deliver(delivery, channel, client, dead_letters)
                    tasks.add(asyncio.create_task(delivering))
                tasks = _without_done(tasks)
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _deliver(
        self,
        delivery: Delivery,
        channel: QueueChannel,
        client: httpx.AsyncClient,
        dead_letters: DeadLetters,
    ) -> None:
        with self.metrics.under_way.track_inprogress():
            verdict = await self._tried(delivery, client)
            if verdict.decision == "again":
                # Somebody stops us: the message is not acknowledged, and goes back to its queue.
                return
            if verdict.decision == "accepted":
                hit("push.accepted")
                self.metrics.accepted.inc()
            else:
                now_ms = self._clock.now_ms()
                await dead_letters.add(delivery, reason=PUSH_FAILED, cause=verdict.cause, now_ms=now_ms)
                hit("push.dead_lettered")
                self.metrics.given_up.inc()
                self._log(delivery, f"is given up, and now in {dead_letters.queue}: {verdict.cause}")
            channel.ack(delivery.tag)

    async def _tried(self, delivery: Delivery, client: httpx.AsyncClient) -> Verdict:
        """Try until it is decided, or until somebody stops us: then it is still to be tried again."""
        config = self._config
        if len(delivery.body) > config.body_bytes_max:
            return Verdict(decision="given-up", cause=f"the body has {len(delivery.body)} bytes")
        message_id = delivery.message_id or uuid.uuid4().hex
        for attempt in range(1, config.attempt_count_max + 1):
            verdict = await self._attempt(delivery, message_id, attempt, client)
            if verdict.decision != "again":
                return verdict
            self.metrics.retried.inc()
            if attempt == config.attempt_count_max:
                break
            chance = random.random()  # noqa: S311  # spreads load, protects nothing
            pause = pause_s(
                attempt, verdict, first_s=config.pause_s_first, longest_s=config.pause_s_max, chance=chance
            )
            self._log(delivery, f"is tried again in {pause:.1f} s: {verdict.cause}")
            await waited(self._stopping, pause)
            if self._stopping.is_set():
                return verdict
        return Verdict(decision="given-up", cause=f"{attempt} attempts, at last {verdict.cause}")

    async def _attempt(
        self, delivery: Delivery, message_id: str, attempt: int, client: httpx.AsyncClient
    ) -> Verdict:
        config = self._config
        now_ms = self._clock.now_ms()
        headers = request_headers(
            delivery,
            message_id=message_id,
            queue=config.queue,
            attempt=attempt,
            now_s=now_ms // 1000,
            secret=config.secret,
        )
        try:
            with self.metrics.attempt_s.time():
                async with asyncio.timeout(config.timeout_s):
                    return await self._posted(client, delivery.body, {**headers, **config.headers}, now_ms)
        except TimeoutError:
            return Verdict(decision="again", cause=f"no answer within {config.timeout_s:g} s")
        except (httpx.TransportError, httpx.StreamError) as error:
            return Verdict(decision="again", cause=f"{type(error).__name__}: {error}")

    async def _posted(
        self, client: httpx.AsyncClient, body: bytes, headers: dict[str, str], now_ms: int
    ) -> Verdict:
        config = self._config
        url = httpx.URL(config.to)
        for _ in range(REDIRECT_COUNT_MAX + 1):
            async with client.stream("POST", url, content=body, headers=headers) as response:
                redirected = self._redirected(response) if config.follow_redirects else None
                if redirected is None:
                    said = await _beginning(response, config.answer_bytes_max)
                    retry_after = response.headers.get("retry-after")
                    return judged(response.status_code, said, retry_after, now_ms=now_ms)
            url = redirected
        return Verdict(decision="given-up", cause=f"more than {REDIRECT_COUNT_MAX} redirects")

    def _redirected(self, response: httpx.Response) -> httpx.URL | None:
        """Where to repeat the request; None where that is not allowed."""
        if response.status_code not in _REPEATED or "location" not in response.headers:
            return None
        try:
            url = response.url.join(response.headers["location"])
        except httpx.InvalidURL:
            return None
        origin = (response.url.scheme, response.url.netloc)
        return url if (url.scheme, url.netloc) == origin else None

    def _log(self, delivery: Delivery, what: str) -> None:
        queue = self._config.queue
        _logger.warning("message %s of %s %s", delivery.message_id, queue, what, extra=fields(queue=queue))


async def _beginning(response: httpx.Response, bytes_max: int) -> bytes:
    said = b""
    async for chunk in response.aiter_raw():
        said += chunk
        if len(said) >= bytes_max:
            break
    return said[:bytes_max]


def _without_done(tasks: set[asyncio.Task[None]]) -> set[asyncio.Task[None]]:
    """Those that go on; raises what one of the others has failed with."""
    for task in tasks:
        if task.done():
            task.result()
    return {task for task in tasks if not task.done()}
