"""Options that mean the same in every command."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from headrace.config import default_bootstrap, default_data_dir
from headrace.errors import ConfigError
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

ShufflePartitions = Annotated[
    int,
    typer.Option("--shuffle-partitions", min=1, help="How many partitions keyed state has when it is made."),
]

TransactionTimeout = Annotated[
    int,
    typer.Option(
        "--transaction-timeout", min=1, help="Seconds that writing a batch may take; brokers allow 900."
    ),
]

SparkConf = Annotated[
    list[str] | None,
    typer.Option(
        "--spark-conf",
        metavar="KEY=VALUE",
        help="A setting of Spark, such as spark.executor.memory=4g. May be given several times.",
    ),
]


def spark_options(given: Sequence[str] | None) -> dict[str, str]:
    """The settings that `--spark-conf` was given."""
    options = {}
    for each in given or ():
        key, equals, value = each.partition("=")
        if not key or not equals:
            raise ConfigError(f"--spark-conf {each!r}: write KEY=VALUE, such as spark.executor.memory=4g")
        options[key.strip()] = value.strip()
    return options


LogFormatOption = Annotated[
    LogFormat, typer.Option("--log-format", help="Log lines for people (text) or for programs (json).")
]

LogLevelOption = Annotated[LogLevel, typer.Option("--log-level", help="The least that is worth a log line.")]

MetricsPublic = Annotated[
    bool, typer.Option("--metrics-public", help="Allow metrics beyond loopback, without a log-in.")
]

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")]
