"""`headrace broker`: the broker alone, in the foreground."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli.options import DataDir, LogFormatOption, LogLevelOption
from headrace.cli.output import announce
from headrace.config import Address, BrokerConfig, Durability
from headrace.logs import configure_logging


def broker(
    data: DataDir,
    listen: Annotated[str, typer.Option(help="Where to listen; port 0 picks a free one.")] = "127.0.0.1:9092",
    durability: Annotated[
        Durability,
        typer.Option(help="sync: acknowledged means on disk. os: in the page cache, as Kafka does."),
    ] = "sync",
    partitions: Annotated[int, typer.Option(min=1, help="Partitions of topics that clients create.")] = 1,
    log_format: LogFormatOption = "text",
    log_level: LogLevelOption = "info",
) -> None:
    """Run the broker until Ctrl-C. Any Kafka client can use it."""
    # Each command imports only what it needs: the others start faster.
    from headrace.broker import run_broker  # noqa: PLC0415

    configure_logging(log_format, log_level)
    config = BrokerConfig(
        listen=Address.parse(listen),
        data_dir=data,
        durability=durability,
        default_partition_count=partitions,
    )
    run_broker(config, lambda address: _announce(address, config))


def _announce(address: Address, config: BrokerConfig) -> None:
    announce(f"broker listening on {address}, data in {config.data_dir}, durability {config.durability}")
