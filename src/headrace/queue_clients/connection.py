"""Connections as coroutines, over pika's asynchronous client.

    connection = await QueueConnection.open("amqp://guest:guest@127.0.0.1:5672/", name="headrace push")
    channel = await connection.channel(confirms=True)
    await channel.publish(b"...", routing_key="orders", properties=...)     # returns when it is confirmed

Everything belongs to the event loop on which the connection was opened. Heartbeats go on while others wait.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Any, Final, Self
from urllib.parse import urlsplit

import pika
from pika.adapters.asyncio_connection import AsyncioConnection
from pika.exceptions import (
    AMQPError,
    AuthenticationError,
    ChannelClosed,
    ConnectionClosed,
    ProbableAccessDeniedError,
    ProbableAuthenticationError,
)

from headrace.errors import ConfigError, HeadraceError, QueueServerRefused, QueueServerUnavailable
from headrace.queue_clients.channel import CLOSE_S_MAX, QueueChannel, fail, fulfil

OPEN_S_MAX: Final = 20.0
BLOCKED_S_MAX: Final = 300.0
"""How long a server that is short of memory or disk may keep a publisher waiting."""


class QueueConnection:
    """One connection to a server of queues."""

    def __init__(self, url: str) -> None:
        self.address = address_of(url)
        self._loop = asyncio.get_running_loop()
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._error: HeadraceError | None = None
        self._channels: set[QueueChannel] = set()
        self._pika: AsyncioConnection | None = None

    @classmethod
    async def open(cls, url: str, *, name: str) -> Self:
        """Connect and log in. The name is what the server shows of this client."""
        connection = cls(url)
        connection._pika = AsyncioConnection(
            _parameters(url, name),
            on_open_callback=connection._on_open,
            on_open_error_callback=connection._on_open_error,
            on_close_callback=connection._on_closed,
        )
        try:
            await asyncio.wait_for(asyncio.shield(connection._opened), OPEN_S_MAX)
        except TimeoutError as error:
            raise connection._unavailable("it does not answer") from error
        return connection

    async def channel(self, *, confirms: bool = False) -> QueueChannel:
        """Open a channel; with publisher confirms, if asked."""
        if self._error is not None:
            raise self._error
        assert self._pika is not None
        opened: asyncio.Future[Any] = self._loop.create_future()
        raw = self._pika.channel(on_open_callback=lambda each: fulfil(opened, each))
        channel = QueueChannel(raw, self)
        self._channels.add(channel)
        channel.waits_for(opened)
        await opened
        if confirms:
            await channel.confirm()
        return channel

    async def close(self) -> None:
        """Close in good order; what is not acknowledged goes back to its queue. May be called twice."""
        if self._pika is not None and self._pika.is_open:
            self._pika.close()
            await asyncio.wait([self._closed], timeout=CLOSE_S_MAX)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def explained(self, error: BaseException) -> HeadraceError:
        """What has closed a channel or the connection, in our own words."""
        if isinstance(error, HeadraceError):
            return error
        if isinstance(error, ChannelClosed | ConnectionClosed) and error.reply_code not in {200, 320}:
            return QueueServerRefused(
                f"the queue server at {self.address} refused: {error.reply_text} ({error.reply_code})",
                reply_code=error.reply_code,
            )
        return self._unavailable(f"the connection is closed: {_reason(error)}")

    def _on_open(self, _connection: object) -> None:
        fulfil(self._opened, None)

    def _on_open_error(self, _connection: object, error: BaseException) -> None:
        cause = _root(error)
        if isinstance(cause, ProbableAuthenticationError | AuthenticationError):
            self._error = ConfigError(
                f"the queue server at {self.address} refused the log-in: put user and password into the URL, "
                "amqp://user:password@host:5672/"
            )
        elif isinstance(cause, ProbableAccessDeniedError) or (
            isinstance(cause, ConnectionClosed) and cause.reply_code == 530
        ):
            self._error = ConfigError(f"the queue server at {self.address} refused: {_reason(cause)}")
        else:
            self._error = self._unavailable(_reason(cause))
        fail(self._opened, self._error)
        fulfil(self._closed, None)

    def _on_closed(self, _connection: object, error: BaseException) -> None:
        self._error = self.explained(error)
        fail(self._opened, self._error)
        fulfil(self._closed, None)
        for channel in tuple(self._channels):
            channel.fail(self._error)

    def _unavailable(self, reason: str) -> QueueServerUnavailable:
        return QueueServerUnavailable(
            f"no queue server answers at {self.address} ({reason}): start one with `headrace broker "
            "--amqp-listen 127.0.0.1:5672`, or name another with --url amqp://user:password@host:5672/"
        )


def address_of(url: str) -> str:
    """Where a URL leads, without user and password: what may be shown."""
    try:
        parts = urlsplit(url)
        port = parts.port or (5671 if parts.scheme == "amqps" else 5672)
    except ValueError as error:
        raise ConfigError(f"the URL of the queue server is wrong: {error}") from error
    if parts.scheme not in {"amqp", "amqps"} or not parts.hostname:
        raise ConfigError(
            "the URL of a queue server begins with amqp:// or amqps:// and names a host: "
            "amqp://guest:guest@127.0.0.1:5672/"
        )
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    path = parts.path if parts.path not in {"", "/"} else ""
    return f"{host}:{port}{path}"


def _parameters(url: str, name: str) -> pika.URLParameters:
    address_of(url)
    try:
        parameters = pika.URLParameters(url)
    except (ValueError, TypeError, KeyError, ssl.SSLError, OSError) as error:
        raise ConfigError(f"the URL of the queue server at {address_of(url)} is wrong: {error}") from error
    parameters.client_properties = {"connection_name": name, "product": "headrace"}
    parameters.blocked_connection_timeout = BLOCKED_S_MAX
    parameters.connection_attempts = 1
    return parameters


def _root(error: BaseException) -> BaseException:
    """What was wrong in the first place: pika wraps the reasons of attempts to connect."""
    inner = getattr(error, "exceptions", None) or (getattr(error, "exception", None), *error.args)
    causes = [each for each in inner if isinstance(each, BaseException)]
    return _root(causes[-1]) if causes else error


def _reason(error: BaseException) -> str:
    if isinstance(error, ConnectionClosed | ChannelClosed):
        return f"{error.reply_text} ({error.reply_code})"
    if isinstance(error, AMQPError) and error.args:
        return _reason(error.args[-1]) if isinstance(error.args[-1], BaseException) else str(error.args[-1])
    return str(error) or type(error).__name__
