"""`headrace sql`: SQL over topics, once or live; views that run as pipelines; a shell."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.client import client_options
from headrace.cli.options import AsJson, Bootstrap, DataDir, ShufflePartitions, SparkConf, spark_options
from headrace.cli.output import say
from headrace.cli.sql_output import SqlFormat
from headrace.config import StreamsConfig
from headrace.errors import SqlError

if TYPE_CHECKING:
    from headrace.streams.sql.statements import Statement

RESTARTS: int = 5
"""How often in a row a view's driver that died is started again."""


def sql(
    bootstrap: Bootstrap,
    data: DataDir,
    statement: Annotated[
        str | None,
        typer.Argument(
            metavar="STATEMENT", help="SELECT ..., CREATE VIEW ... and others; none opens a shell."
        ),
    ] = None,
    live: Annotated[bool, typer.Option("--live", help="Go on as rows come, instead of up to now.")] = False,
    format_: Annotated[
        SqlFormat | None,
        typer.Option("--format", help="How results are printed.", show_default="table"),
    ] = None,
    as_json: AsJson = False,
    limit: Annotated[
        int | None,
        typer.Option(
            min=1, help="At most so many rows.", show_default="1000 in a table, 20 in a live one; else all"
        ),
    ] = None,
    begin: Annotated[
        str | None,
        typer.Option("--from", help="A moment, such as 2026-11-16T09:30:00Z or 7d (ago), or 0:17,1:20."),
    ] = None,
    finish: Annotated[str | None, typer.Option("--to", help="Up to there; without, up to now.")] = None,
    file: Annotated[
        Path | None,
        typer.Option(help="A file of pipelines, or of SQL: what it says of topics is what they are."),
    ] = None,
    run_views: Annotated[
        bool, typer.Option("--run/--no-run", help="Whether CREATE VIEW runs the view at once, until Ctrl-C.")
    ] = True,
    master: Annotated[str | None, typer.Option(help="A Spark cluster, such as spark://host:7077.")] = None,
    shuffle_partitions: ShufflePartitions = 2,
    spark_conf: SparkConf = None,
) -> None:
    """Query topics with SQL: up to now, or live; describe them as tables; make views, which are pipelines.

    Several statements are parted by semicolons. Without one, statements are read from standard input; on a
    terminal that is a shell, with completion and history.
    """
    is_shell = statement is None and sys.stdin.isatty()
    statements = [] if is_shell else _parsed(statement, run_views=run_views)
    # Spark is an extra: only the commands that need it may import what needs it.
    from headrace.cli.replay import parse_bound  # noqa: PLC0415
    from headrace.cli.sql_runner import Asked, Runner, ViewDriver  # noqa: PLC0415
    from headrace.streams.sql.engine import Engine  # noqa: PLC0415

    if live and finish is not None:
        raise SqlError("--to is for what has an end: leave it out, or --live")
    config = StreamsConfig(
        bootstrap=bootstrap,
        master=master,
        data_dir=data,
        shuffle_partition_count=shuffle_partitions,
        client_options=client_options(),
        spark_options=spark_options(spark_conf),
    )
    asked = Asked(
        format="json" if as_json else format_ or "table",
        limit=limit,
        is_live=live,
        begin=parse_bound(begin),
        finish=parse_bound(finish),
    )
    driver = ViewDriver(config=config, options=_driver_options(config, spark_conf), restarts=RESTARTS)
    with Engine(config, file=file, say=say) as engine:
        runner = Runner(engine, asked)
        if is_shell:
            from headrace.cli.sql_shell import Shell  # noqa: PLC0415

            Shell(runner, driver).run()
            return
        views = [view for each in statements if (view := runner.run(each)) is not None]
    if views and run_views:
        raise typer.Exit(driver.run(views[0]))


def _parsed(statement: str | None, *, run_views: bool) -> list[Statement]:
    """The statements that were given; what can't be done in one go is refused before anything is done."""
    from headrace.streams.sql.statements import CreateView, parse_statements  # noqa: PLC0415  # see above

    statements = parse_statements(sys.stdin.read() if statement is None else statement)
    if not statements:
        raise SqlError('there is no statement: write `headrace sql "SELECT ..."`')
    if run_views and sum(isinstance(each, CreateView) for each in statements) > 1:
        raise SqlError(
            "a view that is created runs until Ctrl-C, so create one at a time; or give --no-run, and run "
            "all of them with `headrace run --views`"
        )
    return statements


def _driver_options(config: StreamsConfig, spark_conf: list[str] | None) -> list[str]:
    """What the driver of a view is told of our own options."""
    options = ["--bootstrap", config.bootstrap, "--data", str(config.data_dir)]
    options += ["--shuffle-partitions", str(config.shuffle_partition_count)]
    if config.master is not None:
        options += ["--master", config.master]
    for each in spark_conf or ():
        options += ["--spark-conf", each]
    return options
