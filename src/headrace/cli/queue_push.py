"""`headrace queues push`: post each message of a queue to a URL, until Ctrl-C."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.options import LogFormatOption, LogLevelOption, MetricsPublic
from headrace.cli.output import announce
from headrace.cli.queue_connection import QueueName, QueuesUrl
from headrace.cli.queue_options import headers_of
from headrace.cli.queue_running import run_until_signal
from headrace.clock import SystemClock
from headrace.config import Address, PushConfig, check_metrics_address
from headrace.errors import ConfigError
from headrace.logs import configure_logging
from headrace.metrics.server import MetricsServer
from headrace.queue_clients.push.metrics import PushMetrics
from headrace.queue_clients.push.pusher import Pusher


def push(
    queue: QueueName,
    url: QueuesUrl,
    to: Annotated[str, typer.Option(help="Where to post: http:// or https://.")],
    dead_letters: Annotated[
        str, typer.Option(help="The queue of what is given up.", show_default="QUEUE.dead")
    ] = "",
    concurrency: Annotated[int, typer.Option(min=1, help="How many requests at once, at most.")] = 8,
    attempts: Annotated[int, typer.Option(min=1, help="After so many a message is given up.")] = 8,
    timeout: Annotated[float, typer.Option(help="Seconds that an attempt may take.")] = 10.0,
    pause: Annotated[
        float, typer.Option(help="Seconds before the second attempt; then twice as many.")
    ] = 1.0,
    pause_max: Annotated[float, typer.Option(help="The longest pause, in seconds.")] = 300.0,
    secret_file: Annotated[
        Path | None, typer.Option(help="A file with the secret that requests are signed with.")
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option(help="A header for each request, KEY=VALUE; repeatable.")
    ] = None,
    follow_redirects: Annotated[
        bool,
        typer.Option("--follow-redirects", help="Repeat requests elsewhere on the same server (307, 308)."),
    ] = False,
    metrics_listen: Annotated[
        str | None, typer.Option(help="Serve metrics and health here, such as 127.0.0.1:9310.")
    ] = None,
    metrics_public: MetricsPublic = False,
    log_format: LogFormatOption = "text",
    log_level: LogLevelOption = "info",
) -> None:
    """Post each message of a queue to a URL.

    2xx acknowledges a message. Else it is tried again with growing pauses, and given up at last: then it
    is a dead letter with the cause, which `headrace queues redrive` sends back. Each message is posted at
    least once; the webhook-id tells what came before.
    """
    config = PushConfig(
        queue=queue,
        to=to,
        url=url,
        dead_letter_queue=dead_letters,
        concurrency=concurrency,
        attempt_count_max=attempts,
        timeout_s=timeout,
        pause_s_first=pause,
        pause_s_max=max(pause, pause_max),
        secret="" if secret_file is None else _secret(secret_file),
        headers=headers_of(header or []),
        follow_redirects=follow_redirects,
    )
    listen = None if metrics_listen is None else Address.parse(metrics_listen)
    check_metrics_address(listen, is_public=metrics_public)
    configure_logging(log_format, log_level)
    metrics = PushMetrics(queue)

    def ready() -> None:
        announce(f"push: from queue {queue} to {config.shown_to}")

    async def serve_metrics() -> None:
        if listen is not None:
            server = MetricsServer(metrics.render, metrics.unready, is_public=metrics_public)
            await server.start(_listener(listen))

    run_until_signal(
        lambda: Pusher(config, SystemClock(), metrics=metrics, on_ready=ready), beside=serve_metrics
    )


def _listener(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        return socket.create_server((address.host, address.port), family=family)
    except OSError as error:
        raise ConfigError(f"can't serve metrics on {address}: {error.strerror or error}") from error


def _secret(path: Path) -> str:
    try:
        secret = path.read_text().strip()
    except OSError as error:
        raise ConfigError(f"the secret {path} can't be read: {error.strerror}") from error
    if not secret:
        raise ConfigError(f"the secret {path} is empty")
    return secret
