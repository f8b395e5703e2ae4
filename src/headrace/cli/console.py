"""`headrace console`: the web page alone, in the foreground."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.options import Bootstrap, DataDir, LogFormatOption, LogLevelOption
from headrace.cli.output import announce
from headrace.config import Address, ConsoleConfig
from headrace.logs import configure_logging


def console(
    bootstrap: Bootstrap,
    data: DataDir,
    listen: Annotated[str, typer.Option(help="Where to serve; port 0 picks a free one.")] = "127.0.0.1:8500",
    alerts: Annotated[str, typer.Option(help="The topic of alerts to show.")] = "fraud-alerts",
    source: Annotated[str, typer.Option("--input", help="The topic whose rate to show.")] = "transactions",
    view: Annotated[
        Path | None,
        typer.Option(help="A TOML file that says what to show of an application: topics, sliders, words."),
    ] = None,
    events: Annotated[
        Path | None,
        typer.Option(
            help="A Python file with deciders: the page then shows their event store, in the database that "
            "HEADRACE_POSTGRES names."
        ),
    ] = None,
    log_format: LogFormatOption = "text",
    log_level: LogLevelOption = "info",
) -> None:
    """Serve a page that shows alerts as they come, topics, pipelines and groups, until Ctrl-C.

    The address that is printed has a token: whoever opens it may also read records, kill drivers and move
    sliders. Without the token, the page only shows numbers and alerts. What is done is logged.
    """
    # Each command imports only what it needs: the others start faster.
    from headrace.cli.client import client_options  # noqa: PLC0415
    from headrace.console.server import run_console  # noqa: PLC0415
    from headrace.console.view import read_view, with_places  # noqa: PLC0415

    configure_logging(log_format, log_level)
    shown = None
    if view is not None:
        shown = with_places(read_view(view), directory=view.parent, data_dir=data, bootstrap=bootstrap)
    config = ConsoleConfig(
        listen=Address.parse(listen),
        bootstrap=bootstrap,
        alerts_topic=alerts if shown is None else shown.alerts,
        input_topic=source if shown is None else shown.input,
        data_dir=data,
        client_options=client_options(),
    )
    desk = None
    if events is not None:
        # What the event store needs is an extra.
        from headrace.cli.event_file import load_event_file  # noqa: PLC0415
        from headrace.cli.event_store import open_desk  # noqa: PLC0415

        desk = open_desk(load_event_file(events))
    run_console(config, lambda url: announce(f"console serving on {url}"), view=shown, event_desk=desk)
