"""`headrace run`: run the pipelines of a file until Ctrl-C.

The driver, which holds Spark, is a child of the command: the same command with `--restarts 0`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.options import (
    Bootstrap,
    DataDir,
    LogFormatOption,
    LogLevelOption,
    MetricsPublic,
    ShufflePartitions,
    SparkConf,
    TransactionTimeout,
    spark_options,
)
from headrace.cli.output import announce, say
from headrace.config import Address, Guarantee, StreamsConfig, check_metrics_address
from headrace.driver.restarts import RestartPolicy
from headrace.driver.status import Status, read_statuses
from headrace.driver.supervise import Supervised
from headrace.errors import ConfigError
from headrace.logs import configure_logging

Target = Annotated[
    str | None,
    typer.Argument(metavar="FILE[:PIPELINE]", help="Where the pipelines are: in Python, or views in SQL."),
]
Views = Annotated[bool, typer.Option("--views", help="Run the views that `headrace sql` has made, instead.")]
Master = Annotated[str | None, typer.Option(help="A Spark cluster, such as spark://host:7077.")]
Realtime = Annotated[
    bool, typer.Option("--realtime", help="Milliseconds instead of micro-batches; at least once.")
]
GuaranteeOption = Annotated[
    Guarantee | None,
    typer.Option(
        help="How often a row is written, whatever crashes.",
        show_default="exactly-once; with --realtime at-least-once",
    ),
]
BatchSeconds = Annotated[
    int, typer.Option("--batch", min=5, help="Seconds that a batch of real-time mode lasts.")
]
MaxRecordsPerBatch = Annotated[
    int, typer.Option(min=1, help="The most that a micro-batch reads of a topic that does not say so.")
]
Restarts = Annotated[
    int,
    typer.Option(
        min=0,
        help="How often in a row a driver that died is started again. 0: it runs in this process, for "
        "those who have systemd or Kubernetes restart it.",
    ),
]
MetricsListen = Annotated[
    str,
    typer.Option(
        help="Serve Prometheus metrics and health over HTTP, at 127.0.0.1:9405 for example.",
        show_default="nowhere",
    ),
]


def run(
    bootstrap: Bootstrap,
    data: DataDir,
    target: Target = None,
    views: Views = False,
    master: Master = None,
    realtime: Realtime = False,
    guarantee: GuaranteeOption = None,
    batch_s: BatchSeconds = 300,
    max_records_per_batch: MaxRecordsPerBatch = 1_000_000,
    shuffle_partitions: ShufflePartitions = 2,
    transaction_timeout_s: TransactionTimeout = 900,
    spark_conf: SparkConf = None,
    restarts: Restarts = 5,
    metrics_listen: MetricsListen = "",
    metrics_public: MetricsPublic = False,
    log_format: LogFormatOption = "text",
    log_level: LogLevelOption = "warning",
) -> None:
    """Run the pipelines of a file until Ctrl-C, from their checkpoints where they have one."""
    configure_logging(log_format, log_level)
    address = Address.parse(metrics_listen) if metrics_listen else None
    check_metrics_address(address, is_public=metrics_public)
    if (target is None) != views:
        raise ConfigError("run what? Name a file of pipelines, or give --views")
    if restarts > 0:
        driver = _supervised(restarts, data)
        with _metrics(address, bootstrap, data, lambda: driver.pids, is_public=metrics_public):
            raise typer.Exit(driver.run())
    # Spark is an extra: only the commands that need it may import what needs it.
    from headrace.cli.client import client_options  # noqa: PLC0415

    config = StreamsConfig(
        bootstrap=bootstrap,
        master=master,
        data_dir=data,
        realtime_batch_s=batch_s,
        guarantee=guarantee,
        max_records_per_batch=max_records_per_batch,
        shuffle_partition_count=shuffle_partitions,
        transaction_s_max=transaction_timeout_s,
        client_options=client_options(),
        spark_options=spark_options(spark_conf),
    )
    with _metrics(address, bootstrap, data, lambda: {os.getpid()}, is_public=metrics_public):
        _drive(target or str(_views_dir(data)), config, realtime=realtime)


def _views_dir(data: Path) -> Path:
    """Where views are kept."""
    from headrace.streams.sql.store import views_dir  # noqa: PLC0415  # see above

    found = views_dir(data)
    if not found.is_dir():
        raise ConfigError(
            f'{data} has no views: `headrace sql "CREATE VIEW ..."` makes one, --data says where'
        )
    return found


def _drive(target: str, config: StreamsConfig, *, realtime: bool) -> None:
    """Be the driver itself."""
    from headrace.streams.session import java_ahead  # noqa: PLC0415  # see above

    mode = "in real-time mode" if realtime else "in micro-batches"
    with java_ahead(config, realtime=realtime):
        # What these load takes as long as Java takes to start, so both are done at once.
        from headrace.streams.load import load_pipelines  # noqa: PLC0415
        from headrace.streams.run import run as run_pipelines  # noqa: PLC0415

        run_pipelines(
            load_pipelines(target),
            config,
            realtime=realtime,
            on_started=lambda names: announce(f"running {', '.join(names)} {mode}"),
        )


def driver_arguments(arguments: Sequence[str]) -> list[str]:
    """The command line of the driver: the same, with other options at its end, where the last ones count."""
    end_of_options = arguments.index("--") if "--" in arguments else len(arguments)
    # Metrics are served by the supervisor, which is there also while no driver is.
    ours = ("--restarts", "0", "--metrics-listen", "")
    return [*arguments[:end_of_options], *ours, *arguments[end_of_options:]]


def _supervised(restarts: int, data: Path) -> Supervised:
    """The same command as a child that is the driver itself."""
    return Supervised(
        ("-m", "headrace", *driver_arguments(sys.argv[1:])),
        data_dir=data,
        policy=RestartPolicy(count_max=restarts),
        say=say,
    )


@contextmanager
def _metrics(
    listen: Address | None, bootstrap: str, data: Path, pids: Callable[[], set[int]], *, is_public: bool
) -> Iterator[None]:
    """Serve the metrics of the pipelines that these processes run, if that was asked for."""
    if listen is None:
        yield
        return
    # Only those who are watched pay for these at their start.
    from headrace.cli.client import client_options  # noqa: PLC0415
    from headrace.driver.lag import LagReader  # noqa: PLC0415
    from headrace.driver.metrics import PipelineMetrics  # noqa: PLC0415
    from headrace.driver.metrics_thread import served  # noqa: PLC0415

    def statuses() -> list[Status]:
        own = pids()
        return [status.seen_now() for status in read_statuses(data) if status.process.pid in own]

    metrics = PipelineMetrics(statuses, LagReader(bootstrap, client_options()).lags)
    with served(metrics, listen, is_public=is_public) as address:
        say(f"metrics on http://{address}/metrics")
        yield
