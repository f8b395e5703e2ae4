"""Options that mean the same in every command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headrace.config import default_bootstrap, default_data_dir
from headrace.logs import LogFormat, LogLevel

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]

Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        "-b",
        default_factory=default_bootstrap,
        show_default="HEADRACE_BOOTSTRAP, else 127.0.0.1:9092",
        help="The broker, or a Kafka cluster: host:port, several with commas.",
    ),
]

DataDir = Annotated[
    Path,
    typer.Option(
        "--data",
        default_factory=default_data_dir,
        show_default="HEADRACE_DATA, else .headrace",
        help="Where logs and checkpoints are kept.",
    ),
]

LogFormatOption = Annotated[
    LogFormat, typer.Option("--log-format", help="Log lines for people (text) or for programs (json).")
]

LogLevelOption = Annotated[LogLevel, typer.Option("--log-level", help="The least that is worth a log line.")]

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")]
