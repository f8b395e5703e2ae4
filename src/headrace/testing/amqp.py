"""The client's side of a connection, for tests without sockets: frames by the library `pamqp`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pamqp import commands
from pamqp import frame as pamqp_frame
from pamqp.base import Frame
from pamqp.body import ContentBody
from pamqp.header import ContentHeader
from pamqp.heartbeat import Heartbeat

from headrace.queue.amqp.connection import GREETING, Connection, ConnectionLimits
from headrace.queue.amqp.events import LoginAsked, OpenAsked

LIMITS: Final = ConnectionLimits(message_bytes_max=100_000, content_bytes_max=150_000, channel_count_max=10)
CAPABILITIES: Final = {"authentication_failure_close": True, "consumer_cancel_notify": True}


def to_bytes(channel: int, *values: Frame | ContentHeader | ContentBody | Heartbeat) -> bytes:
    """Frames."""
    return b"".join(pamqp_frame.marshal(value, channel) for value in values)


def start_ok(
    *,
    mechanism: str = "PLAIN",
    response: str = "\0guest\0guest",
    capabilities: Mapping[str, Any] = CAPABILITIES,
) -> bytes:
    """What a client says first."""
    return to_bytes(
        0,
        commands.Connection.StartOk(
            client_properties={"capabilities": dict(capabilities)}, mechanism=mechanism, response=response
        ),
    )


def publish(body: bytes, *, channel: int = 1, frame_max: int = 131_072, **method: Any) -> bytes:
    """A message, in as many frames as it takes."""
    pieces = [body[n : n + frame_max - 8] for n in range(0, len(body), frame_max - 8)]
    return to_bytes(
        channel,
        commands.Basic.Publish(**method),
        ContentHeader(0, len(body), commands.Basic.Properties(content_type="text/plain")),
        *map(ContentBody, pieces),
    )


def taken(connection: Connection) -> list[Any]:
    """What the connection wants sent, as the library reads it; pairs of channel and value."""
    data = b"".join(connection.outgoing)
    connection.outgoing.clear()
    values = []
    while data:
        size, channel, value = pamqp_frame.unmarshal(data)
        values.append((channel, value))
        data = data[size:]
    return values


def only(connection: Connection) -> Any:
    """The one method that the connection wants sent."""
    ((_, value),) = taken(connection)
    return value


def events(connection: Connection, data: bytes, now_s: float = 0.0) -> list[Any]:
    """What comes of bytes."""
    connection.receive(data, now_s)
    found = []
    while (event := connection.next_event()) is not None:
        found.append(event)
    return found


def opened(
    limits: ConnectionLimits = LIMITS, *, heartbeat_s: int = 0, frame_max: int = 131_072
) -> Connection:
    """A connection that is open, with channel 1."""
    connection = Connection(limits, 0.0, {"product": "Headrace"})
    events(connection, GREETING)
    ((_, asked),) = events(connection, start_ok())
    assert isinstance(asked, LoginAsked)
    connection.login_succeeded()
    tuned = commands.Connection.TuneOk(
        channel_max=limits.channel_count_max, frame_max=frame_max, heartbeat=heartbeat_s
    )
    ((_, asked),) = events(
        connection, to_bytes(0, tuned) + to_bytes(0, commands.Connection.Open(virtual_host="/"))
    )
    assert isinstance(asked, OpenAsked)
    connection.open_succeeded()
    events(connection, to_bytes(1, commands.Channel.Open()))
    taken(connection)
    return connection
