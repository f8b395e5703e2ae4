"""`headrace up`: all that is embedded, in the foreground: broker, queues, PostgreSQL, console, here only.

It supervises children and does no work of its own. Pipelines that are run with the same data directory show
up on the page.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Annotated, Final

import typer

from headrace.cli.demo_parts import broker_child, console_child, postgres_child
from headrace.cli.foreground import free_address, ignore_signals, line_printer, stop_on_signals
from headrace.cli.options import DataDir
from headrace.cli.output import say
from headrace.cli.postgres import has_postgres, require_postgres
from headrace.supervisor import Supervisor

LOOP_PAUSE_S: Final = 0.2


def up(
    data: DataDir,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Where the page is served.")] = 8500,
    broker_port: Annotated[int, typer.Option(min=0, max=65535, help="Where the broker listens.")] = 9092,
    amqp_port: Annotated[int, typer.Option(min=0, max=65535, help="Where work queues are served.")] = 5672,
    postgres_port: Annotated[int, typer.Option(min=0, max=65535, help="Where PostgreSQL listens.")] = 5432,
    postgres: Annotated[
        bool | None,
        typer.Option(
            "--postgres/--no-postgres", help="Run PostgreSQL, too.", show_default="if its extra is installed"
        ),
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show what the parts print.")] = False,
) -> None:
    """Run broker, queues, PostgreSQL and console until Ctrl-C. Free ports replace those that are taken."""
    if postgres:
        require_postgres()
    supervisor = Supervisor(line_printer(verbose=verbose))
    stop_on_signals()
    try:
        queues = free_address("queues", amqp_port)
        bootstrap = supervisor.start(broker_child(free_address("broker", broker_port), data, queues))
        say(f"broker    listening on {bootstrap}; any Kafka client can use it")
        say(f"queues    amqp://guest:guest@{queues}/; any client of AMQP 0-9-1 can use them")
        if has_postgres() if postgres is None else postgres:
            dsn = supervisor.start(postgres_child(free_address("postgres", postgres_port), data))
            say(f'postgres  "{dsn}"; capture it with `headrace capture add NAME --dsn "..."`')
        page = supervisor.start(console_child(free_address("page", port), bootstrap, data))
        say(f"page      [bold]{page}[/bold]")
        say("Ctrl-C stops everything")
        while True:
            supervisor.check()
            time.sleep(LOOP_PAUSE_S)
    except KeyboardInterrupt:
        pass
    finally:
        ignore_signals()
        # The terminal may be gone, which is no reason to leave anything running.
        with suppress(OSError):
            say("stopping")
        supervisor.stop()
