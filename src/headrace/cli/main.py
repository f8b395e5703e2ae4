"""The command `headrace`. Commands are registered here; each lives in a file of its own."""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli import broker, console, consume, demo, doctor, groups, produce, run, setup, topics, users
from headrace.cli.client import use_client_config
from headrace.cli.output import err
from headrace.config import default_client_config
from headrace.errors import HeadraceError, UsageError

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Headrace: a streaming platform in one Python package.",
)
app.command()(broker.broker)
app.add_typer(topics.app, name="topics")
app.add_typer(users.app, name="users")
app.command()(produce.produce)
app.command()(consume.consume)
app.add_typer(groups.app, name="groups")
app.command()(run.run)
app.command()(console.console)
app.command()(demo.demo)
app.command()(setup.setup)
app.command()(doctor.doctor)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"headrace {version('headrace')}")
        raise typer.Exit


@app.callback()
def options(
    client_config: Annotated[
        Path | None,
        typer.Option(
            default_factory=default_client_config,
            show_default="HEADRACE_CLIENT_CONFIG",
            help="A file of settings for Kafka clients, KEY=VALUE a line: how to log in to a secured broker.",
        ),
    ],
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Take the options that stand before a command."""
    if client_config is not None:
        use_client_config(client_config)


def main() -> None:
    """Run a command. Our own errors become one sentence: exit code 2 for misuse, 1 for faults."""
    try:
        app()
    except HeadraceError as error:
        err.print(f"[bold red]error:[/bold red] {_escaped(error)}", soft_wrap=True)
        sys.exit(2 if isinstance(error, UsageError) else 1)
    except BrokenPipeError:
        # The reader of our output has gone, as in `headrace consume t | head`.
        sys.stderr.close()
        sys.exit(0)


def _escaped(error: HeadraceError) -> str:
    return str(error).replace("[", r"\[")
