"""`headrace console`: the web page alone, in the foreground."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli.options import Bootstrap
from headrace.cli.output import announce
from headrace.config import Address, ConsoleConfig


def console(
    bootstrap: Bootstrap,
    listen: Annotated[str, typer.Option(help="Where to serve; port 0 picks a free one.")] = "127.0.0.1:8500",
    alerts: Annotated[str, typer.Option(help="The topic of alerts to show.")] = "fraud-alerts",
    source: Annotated[str, typer.Option("--input", help="The topic whose rate to show.")] = "transactions",
) -> None:
    """Serve a page that shows alerts as they come, until Ctrl-C."""
    # Each command imports only what it needs: the others start faster.
    from headrace.console.server import run_console  # noqa: PLC0415

    config = ConsoleConfig(
        listen=Address.parse(listen), bootstrap=bootstrap, alerts_topic=alerts, input_topic=source
    )
    run_console(config, lambda address: announce(f"console serving on http://{address}"))
