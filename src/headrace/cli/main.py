"""The command `headrace`. Each command lives in a file of its own, under its name.

Only commands that are named on the command line are loaded; all of them for `--help` and the like. Kafka's
client, tables and JSON paths take longer to load than a broker takes to start.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from headrace.config import default_client_config
from headrace.errors import HeadraceError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

COMMANDS: Final = (
    "broker",
    "topics",
    "users",
    "produce",
    "consume",
    "groups",
    "run",
    "check",
    "pipelines",
    "replay",
    "verify",
    "console",
    "demo",
    "setup",
    "doctor",
)


def new_app(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """The command line with these commands. A module has a function of its own name, or an app of several."""
    app = typer.Typer(
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        help="Headrace: a streaming platform in one Python package.",
    )
    app.callback()(options)
    for name in names:
        module = import_module(f"headrace.cli.{name}")
        if hasattr(module, "app"):
            app.add_typer(module.app, name=name)
        else:
            app.command(name)(getattr(module, name))
    return app


def _print_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version  # noqa: PLC0415  # only this needs it

        typer.echo(f"headrace {version('headrace')}")
        raise typer.Exit


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
        from headrace.cli.client import use_client_config  # noqa: PLC0415  # see above

        use_client_config(client_config)


def main() -> None:
    """Run a command. Our own errors become one sentence: exit code 2 for misuse, 1 for faults."""
    # A name may also be an argument of another command; loading one too many does no harm.
    named = [name for name in COMMANDS if name in sys.argv[1:]]
    try:
        new_app(named or COMMANDS)()
    except HeadraceError as error:
        from headrace.cli.output import err  # noqa: PLC0415  # see above

        err.print(f"[bold red]error:[/bold red] {_escaped(error)}", soft_wrap=True)
        sys.exit(2 if isinstance(error, UsageError) else 1)
    except SystemExit as end:
        if not isinstance(end.__context__, BrokenPipeError):
            raise
        # The reader of our output has gone, as in `headrace consume t | head`, for which Typer ends with 1.
        # It has all that it wanted, so this is no failure; what is left in the buffer goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


def _escaped(error: HeadraceError) -> str:
    return str(error).replace("[", r"\[")
