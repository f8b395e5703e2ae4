"""The commands of `headrace`. Each lives in a file of its own, under its name.

Only commands that are named on the command line are loaded; all of them for `--help` and the like. Kafka's
client, tables and JSON paths take longer to load than a broker takes to start.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from headrace.config import default_client_config

if TYPE_CHECKING:
    from collections.abc import Iterable

COMMANDS: Final = (
    "up",
    "broker",
    "postgres",
    "redis",
    "topics",
    "users",
    "produce",
    "consume",
    "groups",
    "queues",
    "run",
    "check",
    "pipelines",
    "capture",
    "events",
    "sql",
    "replay",
    "verify",
    "views",
    "state",
    "explain",
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
