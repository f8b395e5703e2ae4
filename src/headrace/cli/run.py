"""`headrace run`: run the pipelines of a file until Ctrl-C.

The driver, which holds Spark, is a child of the command: the same command with `--restarts 0`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.client import client_options
from headrace.cli.options import Bootstrap, DataDir, LogFormatOption, LogLevelOption
from headrace.cli.output import announce, say
from headrace.config import Guarantee, StreamsConfig
from headrace.driver.restarts import RestartPolicy
from headrace.driver.supervise import Supervised
from headrace.logs import configure_logging


def run(
    target: Annotated[str, typer.Argument(metavar="FILE[:PIPELINE]", help="Where the pipelines are.")],
    bootstrap: Bootstrap,
    data: DataDir,
    master: Annotated[str | None, typer.Option(help="A Spark cluster, such as spark://host:7077.")] = None,
    realtime: Annotated[
        bool, typer.Option("--realtime", help="Milliseconds instead of micro-batches; at least once.")
    ] = False,
    guarantee: Annotated[
        Guarantee | None,
        typer.Option(
            help="How often a row is written, whatever crashes.",
            show_default="exactly-once; with --realtime at-least-once",
        ),
    ] = None,
    batch_s: Annotated[
        int, typer.Option("--batch", min=5, help="Seconds that a batch of real-time mode lasts.")
    ] = 300,
    max_records_per_batch: Annotated[
        int, typer.Option(min=1, help="The most that a micro-batch reads of a topic that does not say so.")
    ] = 1_000_000,
    restarts: Annotated[
        int,
        typer.Option(
            min=0,
            help="How often in a row a driver that died is started again. 0: it runs in this process, for "
            "those who have systemd or Kubernetes restart it.",
        ),
    ] = 5,
    log_format: LogFormatOption = "text",
    log_level: LogLevelOption = "warning",
) -> None:
    """Run the pipelines of a file until Ctrl-C, from their checkpoints where they have one."""
    if restarts > 0:
        raise typer.Exit(_supervise(restarts, data))
    configure_logging(log_format, log_level)
    # Spark is an extra: only the commands that need it may import what needs it.
    from headrace.streams.load import load_pipelines  # noqa: PLC0415
    from headrace.streams.run import run as run_pipelines  # noqa: PLC0415

    config = StreamsConfig(
        bootstrap=bootstrap,
        master=master,
        data_dir=data,
        realtime_batch_s=batch_s,
        guarantee=guarantee,
        max_records_per_batch=max_records_per_batch,
        client_options=client_options(),
    )
    mode = "in real-time mode" if realtime else "in micro-batches"
    run_pipelines(
        load_pipelines(target),
        config,
        realtime=realtime,
        on_started=lambda names: announce(f"running {', '.join(names)} {mode}"),
    )


def _supervise(restarts: int, data: Path) -> int:
    """Run the same command as a child that is the driver itself. Returns its exit code."""
    driver = Supervised(
        ("-m", "headrace", *driver_arguments(sys.argv[1:])),
        data_dir=data,
        policy=RestartPolicy(count_max=restarts),
        say=say,
    )
    return driver.run()


def driver_arguments(arguments: Sequence[str]) -> list[str]:
    """The command line of the driver: the same, and `--restarts 0`, of which the last one counts."""
    end_of_options = arguments.index("--") if "--" in arguments else len(arguments)
    return [*arguments[:end_of_options], "--restarts", "0", *arguments[end_of_options:]]
