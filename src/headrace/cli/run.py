"""`headrace run`: run the pipelines of a file until Ctrl-C."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli.client import client_options
from headrace.cli.options import Bootstrap, DataDir
from headrace.cli.output import announce
from headrace.config import Guarantee, StreamsConfig


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
) -> None:
    """Run the pipelines of a file until Ctrl-C, from their checkpoints where they have one."""
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
