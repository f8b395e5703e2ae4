"""What is in the queues, as far as a server tells.

AMQP knows only how many messages of a queue that one can name are ready, and how many consumers it has. For
more there are two ways, tried in this order:

    embedded server    a basic.get from `amq.headrace.queues` is answered with all queues, as JSON
    RabbitMQ           its management API over HTTP, where its address is given
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

import httpx

from headrace.errors import ConfigError, QueueServerRefused, QueueServerUnavailable
from headrace.queue_clients.channel import NO_QUEUE
from headrace.queue_clients.connection import QueueConnection

LISTING: Final = "amq.headrace.queues"
"""What looks like a queue of the embedded server, and holds the listing of all."""
HTTP_S_MAX: Final = 10.0

Row = dict[str, Any]


async def list_queues(
    connection: QueueConnection, *, names: Sequence[str], management: str | None, url: str
) -> list[Row]:
    """All queues with their counts, or those that are named."""
    rows = await _embedded(connection)
    if rows is None and management is not None:
        rows = await _managed(management, url)
    if rows is None:
        if not names:
            raise ConfigError(
                f"the server at {connection.address} does not list its queues by AMQP: name them, or give "
                "the address of RabbitMQ's management API (--management http://host:15672)"
            )
        return [await _declared(connection, name) for name in names]
    known = {row["queue"] for row in rows}
    for name in names:
        if name not in known:
            raise _unknown(name)
    wanted = set(names) or known
    return sorted((row for row in rows if row["queue"] in wanted), key=lambda row: str(row["queue"]))


async def _embedded(connection: QueueConnection) -> list[Row] | None:
    channel = await connection.channel()
    try:
        delivery = await channel.get(LISTING)
    except QueueServerRefused as error:
        if error.reply_code == NO_QUEUE:
            return None
        raise
    await channel.close()
    return None if delivery is None else list(json.loads(delivery.body))


async def _declared(connection: QueueConnection, name: str) -> Row:
    channel = await connection.channel()
    try:
        declared = await channel.declare_queue(name, passive=True)
    except QueueServerRefused as error:
        if error.reply_code == NO_QUEUE:
            raise _unknown(name) from error
        raise
    await channel.close()
    return {
        "queue": name,
        "ready": declared.message_count,
        "unacknowledged": None,
        "consumers": declared.consumer_count,
    }


async def _managed(management: str, url: str) -> list[Row]:
    parts = urlsplit(url)
    vhost = unquote(parts.path[1:]) if len(parts.path) > 1 else "/"
    login = (unquote(parts.username or "guest"), unquote(parts.password or "guest"))
    address = f"{management.rstrip('/')}/api/queues/{quote(vhost, safe='')}"
    try:
        async with httpx.AsyncClient(auth=login, timeout=HTTP_S_MAX, trust_env=False) as client:
            answer = await client.get(address)
            answer.raise_for_status()
            return [_row(each) for each in answer.json()]
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        raise QueueServerUnavailable(
            f"RabbitMQ's management API does not answer at {management}: {error}"
        ) from error


def _row(managed: Mapping[str, Any]) -> Row:
    return {
        "queue": managed["name"],
        "ready": managed.get("messages_ready", 0),
        "unacknowledged": managed.get("messages_unacknowledged", 0),
        "consumers": managed.get("consumers", 0),
        "durable": managed.get("durable"),
        "bytes": managed.get("message_bytes"),
        "arguments": managed.get("arguments", {}),
    }


def _unknown(name: str) -> ConfigError:
    return ConfigError(f"there is no queue {name}: `headrace queues list` shows what is there")
