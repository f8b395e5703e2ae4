"""How the commands reach a queue server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, TypeVar

import typer

from headrace.config import default_queues_url
from headrace.errors import ConfigError, QueueServerRefused
from headrace.queue_clients.channel import NO_QUEUE
from headrace.queue_clients.connection import QueueConnection

Answer = TypeVar("Answer")

QueueName = Annotated[str, typer.Argument(help="The queue's name.")]

QueuesUrl = Annotated[
    str,
    typer.Option(
        "--url",
        "-u",
        default_factory=default_queues_url,
        show_default="HEADRACE_QUEUES, else the embedded server at 127.0.0.1:5672",
        help="The queue server: amqp://user:password@host:5672/vhost, or amqps://...",
    ),
]


def on_connection(url: str, work: Callable[[QueueConnection], Awaitable[Answer]]) -> Answer:
    """Do something on a connection of its own, and close it."""

    async def run() -> Answer:
        async with await QueueConnection.open(url, name="headrace queues") as connection:
            return await work(connection)

    silence_libraries()
    return asyncio.run(run())


def silence_libraries() -> None:
    """What the clients log of themselves would repeat what our errors say, and show URLs as they are."""
    for name in ("pika", "httpx", "httpcore"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


@contextmanager
def unknown_queue_explained(queue: str) -> Iterator[None]:
    """Say what to do about a queue that is not there."""
    try:
        yield
    except QueueServerRefused as error:
        if error.reply_code != NO_QUEUE:
            raise
        raise ConfigError(
            f"there is no queue {queue}: `headrace queues list` shows what is there, and `headrace queues "
            f"declare {queue}` makes it"
        ) from error
