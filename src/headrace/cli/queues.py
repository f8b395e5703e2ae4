"""`headrace queues`: look at queues and change them, here or on RabbitMQ; lead them to topics and URLs."""

from __future__ import annotations

import sys
from base64 import b64encode
from pathlib import Path
from typing import Annotated, Any

import typer

from headrace.cli.options import AsJson, Yes
from headrace.cli.output import announce, print_json, print_rows, report
from headrace.cli.queue_bridge import bridge
from headrace.cli.queue_connection import QueueName, QueuesUrl, on_connection, unknown_queue_explained
from headrace.cli.queue_options import arguments_of, headers_of
from headrace.cli.queue_push import push
from headrace.cli.queue_redrive import redrive
from headrace.queue_clients.connection import QueueConnection
from headrace.queue_clients.delivery import Delivery
from headrace.queue_clients.listing import list_queues
from headrace.queue_clients.publishing import Publishing

app = typer.Typer(
    no_args_is_help=True, help="Look at queues, change them, and connect them with topics and URLs."
)
COLUMNS = ("queue", "ready", "unacknowledged", "consumers")


@app.command("list")
def list_(
    url: QueuesUrl,
    queue: Annotated[list[str] | None, typer.Argument(help="Only these.")] = None,
    management: Annotated[
        str | None, typer.Option(help="RabbitMQ's management API, such as http://127.0.0.1:15672.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List queues: how many messages are ready and how many are with consumers."""

    async def work(connection: QueueConnection) -> list[dict[str, Any]]:
        return await list_queues(connection, names=queue or [], management=management, url=url)

    print_rows(on_connection(url, work), columns=COLUMNS, as_json=as_json)


@app.command("declare")
def declare(
    queue: QueueName,
    url: QueuesUrl,
    dead_letters: Annotated[
        str | None, typer.Option(help="A queue for what is rejected or expires; made as well.")
    ] = None,
    argument: Annotated[
        list[str] | None,
        typer.Option(help="An argument, KEY=VALUE, such as x-max-length=1000; repeatable."),
    ] = None,
    transient: Annotated[bool, typer.Option("--transient", help="Gone after a restart.")] = False,
    as_json: AsJson = False,
) -> None:
    """Make a queue, or check that it is as described. Queues are durable unless told otherwise."""
    arguments = arguments_of(argument or [])
    if dead_letters is not None:
        arguments |= {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead_letters}

    async def work(connection: QueueConnection) -> None:
        channel = await connection.channel()
        if dead_letters is not None:
            await channel.declare_queue(dead_letters)
        await channel.declare_queue(queue, durable=not transient, arguments=arguments)

    on_connection(url, work)
    report(f"queue {queue} is there", {"queue": queue, "arguments": arguments}, as_json=as_json)


@app.command("bind")
def bind(
    queue: QueueName,
    exchange: Annotated[str, typer.Argument(help="The exchange that is to feed it.")],
    url: QueuesUrl,
    key: Annotated[str, typer.Option(help="The key or pattern of the binding.")] = "",
    exchange_type: Annotated[
        str | None,
        typer.Option(help="Make the exchange, of this type: direct, fanout, topic or headers."),
    ] = None,
    argument: Annotated[
        list[str] | None, typer.Option(help="For a headers exchange: KEY=VALUE; repeatable.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Have an exchange feed a queue."""

    async def work(connection: QueueConnection) -> None:
        channel = await connection.channel()
        if exchange_type is not None:
            await channel.declare_exchange(exchange, exchange_type)
        await channel.bind(queue, exchange, key, arguments_of(argument or []))

    on_connection(url, work)
    report(
        f"exchange {exchange} feeds queue {queue}" + (f" with {key!r}" if key else ""),
        {"queue": queue, "exchange": exchange, "key": key},
        as_json=as_json,
    )


@app.command("publish")
def publish(
    queue: Annotated[str, typer.Argument(help="The queue; or with --exchange, the routing key.")],
    url: QueuesUrl,
    message: Annotated[
        list[str] | None, typer.Argument(help="Messages; without any, each line of standard input is one.")
    ] = None,
    exchange: Annotated[str, typer.Option(help="Publish to this exchange.")] = "",
    header: Annotated[list[str] | None, typer.Option(help="A header, KEY=VALUE; repeatable.")] = None,
    content_type: Annotated[str | None, typer.Option(help="Such as application/json.")] = None,
    priority: Annotated[int | None, typer.Option(min=0, max=255, help="For queues with priorities.")] = None,
    expiration_ms: Annotated[int | None, typer.Option(min=0, help="How long it may wait.")] = None,
    file: Annotated[
        Path | None, typer.Option(exists=True, help="One message: all that is in this file.")
    ] = None,
    transient: Annotated[bool, typer.Option("--transient", help="Need not survive a restart.")] = False,
    as_json: AsJson = False,
) -> None:
    """Publish messages, each with an id of its own; report when the server has confirmed all of them."""
    publishing = Publishing(
        exchange=exchange,
        routing_key=queue,
        headers=headers_of(header or []),
        content_type=content_type,
        priority=priority,
        expiration_ms=expiration_ms,
        transient=transient,
    )
    if file is not None:
        bodies = iter([file.read_bytes()])
    elif message:
        bodies = (text.encode(errors="surrogateescape") for text in message)
    else:
        bodies = (line.rstrip(b"\r\n") for line in sys.stdin.buffer)
    count = on_connection(url, lambda connection: publishing.publish_all(connection, bodies))
    report(f"{count} messages confirmed", {"confirmed": count}, as_json=as_json)


@app.command("get")
def get(
    queue: QueueName,
    url: QueuesUrl,
    count: Annotated[int, typer.Option(min=1, help="How many, at most.")] = 1,
    ack: Annotated[
        bool, typer.Option("--ack", help="Take them out for good; without, they go back.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the next messages of a queue: bodies, or everything with --json."""

    async def work(connection: QueueConnection) -> None:
        channel = await connection.channel()
        for _ in range(count):
            delivery = await channel.get(queue)
            if delivery is None:
                break
            _show(delivery, as_json=as_json)
            if ack:
                # What was printed and not acknowledged comes again: better twice than never.
                channel.ack(delivery.tag)
        await channel.close()

    with unknown_queue_explained(queue):
        on_connection(url, work)


@app.command("purge")
def purge(queue: QueueName, url: QueuesUrl, yes: Yes = False, as_json: AsJson = False) -> None:
    """Remove all messages that wait in a queue; those with consumers stay."""
    count = _ready_count(queue, url)
    if count and not yes:
        typer.confirm(f"Remove {count} messages of queue {queue} for good?", abort=True, err=True)

    async def work(connection: QueueConnection) -> int:
        return await (await connection.channel()).purge(queue)

    removed = on_connection(url, work)
    report(f"removed {removed} messages of {queue}", {"queue": queue, "removed": removed}, as_json=as_json)


@app.command("delete")
def delete(
    queue: QueueName,
    url: QueuesUrl,
    if_empty: Annotated[bool, typer.Option("--if-empty", help="Only if nothing waits in it.")] = False,
    if_unused: Annotated[bool, typer.Option("--if-unused", help="Only if nobody consumes.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete a queue and all its messages."""
    count = _ready_count(queue, url)
    if not yes:
        typer.confirm(f"Delete queue {queue} and its {count} messages?", abort=True, err=True)

    async def work(connection: QueueConnection) -> int:
        channel = await connection.channel()
        return await channel.delete_queue(queue, if_empty=if_empty, if_unused=if_unused)

    removed = on_connection(url, work)
    report(
        f"deleted queue {queue} with {removed} messages",
        {"queue": queue, "deleted": True, "messages": removed},
        as_json=as_json,
    )


app.command("redrive")(redrive)
app.command("bridge")(bridge)
app.command("push")(push)


def _ready_count(queue: str, url: str) -> int:
    async def work(connection: QueueConnection) -> int:
        count: int = (await (await connection.channel()).declare_queue(queue, passive=True)).message_count
        return count

    with unknown_queue_explained(queue):
        return on_connection(url, work)


def _show(delivery: Delivery, *, as_json: bool) -> None:
    if not as_json:
        announce(delivery.body.decode(errors="replace"))
        return
    try:
        body: dict[str, object] = {"body": delivery.body.decode()}
    except UnicodeDecodeError:
        body = {"body_base64": b64encode(delivery.body).decode()}
    print_json(
        {
            "exchange": delivery.exchange,
            "routing_key": delivery.routing_key,
            "redelivered": delivery.redelivered,
            "message_id": delivery.message_id,
            "content_type": delivery.properties.content_type,
            "headers": _plain(dict(delivery.headers)),
            **body,
        }
    )


def _plain(value: object) -> object:
    """What JSON can say of a header's value."""
    if isinstance(value, dict):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if value is None or isinstance(value, str | int | float):
        return value
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
