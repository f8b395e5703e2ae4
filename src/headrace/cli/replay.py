"""`headrace replay`: run a pipeline over the log once more."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from headrace.cli.client import client_options
from headrace.cli.options import (
    AsJson,
    Bootstrap,
    DataDir,
    ShufflePartitions,
    SparkConf,
    TransactionTimeout,
    spark_options,
)
from headrace.cli.output import err, report, say
from headrace.cli.times import parse_moment_ms
from headrace.config import StreamsConfig
from headrace.errors import ConfigError

if TYPE_CHECKING:
    from headrace.streams.pipeline import Pipeline
    from headrace.streams.spans import Bound


def replay(
    target: Annotated[str, typer.Argument(metavar="FILE:PIPELINE", help="Where the pipeline is.")],
    bootstrap: Bootstrap,
    data: DataDir,
    begin: Annotated[
        str | None,
        typer.Option("--from", help="A moment, such as 2026-11-16T09:30:00Z or 7d (ago), or 0:17,1:20."),
    ] = None,
    finish: Annotated[
        str | None, typer.Option("--to", help="Up to there; without, up to the end of the log.")
    ] = None,
    into: Annotated[
        str | None,
        typer.Option(
            help="What the pipeline writes, a new one: a topic, SCHEMA.TABLE, or a directory. In batch."
        ),
    ] = None,
    then_live: Annotated[
        bool, typer.Option("--then-live", help="Replay on the checkpoint that `headrace run` goes on from.")
    ] = False,
    swap: Annotated[
        bool, typer.Option("--swap", help="The same, in place of the present checkpoint and results.")
    ] = False,
    master: Annotated[str | None, typer.Option(help="A Spark cluster, such as spark://host:7077.")] = None,
    shuffle_partitions: ShufflePartitions = 2,
    transaction_timeout_s: TransactionTimeout = 900,
    spark_conf: SparkConf = None,
    as_json: AsJson = False,
) -> None:
    """Run a pipeline over the log once more: into a new topic or table, or up to the present and then live.

    --from and --to take a moment, or an offset for each partition: 0:17,1:20, or TOPIC:0:17 where several
    topics are read. A replay that was interrupted is finished by giving the same command again.
    """
    is_live = then_live or swap
    if (into is None) != is_live:
        raise ConfigError("replay where to? Use one of --into NAME, --then-live and --swap")
    if is_live and finish is not None:
        raise ConfigError("--to is for --into: what goes live is replayed up to the present")
    pipeline = the_pipeline(target)
    config = StreamsConfig(
        bootstrap=bootstrap,
        data_dir=data,
        master=master,
        shuffle_partition_count=shuffle_partitions,
        transaction_s_max=transaction_timeout_s,
        client_options=client_options(),
        spark_options=spark_options(spark_conf),
    )
    if into is not None:
        line, told = _replay_into(pipeline, config, into, parse_bound(begin), parse_bound(finish))
    else:
        line, told = _go_live(target, pipeline, config, parse_bound(begin), swap=swap)
    report(line, told, as_json=as_json)


def parse_bound(text: str | None) -> Bound:
    """A moment or offsets; open without any."""
    # Spark is an extra: only the commands that need it may import what needs it.
    from headrace.streams.spans import OPEN, Bound, parse_offsets_bound  # noqa: PLC0415

    if text is None:
        return OPEN
    return parse_offsets_bound(text) or Bound(
        moment_ms=parse_moment_ms(text, now_ms=time.time_ns() // 1_000_000), words=text
    )


def the_pipeline(target: str) -> Pipeline[Any]:
    """The one that is named."""
    from headrace.streams.load import load_pipelines, split_target  # noqa: PLC0415  # see above

    pipelines = load_pipelines(target)
    path, _name = split_target(target)
    if len(pipelines) != 1:
        names = ", ".join(pipeline.name for pipeline in pipelines)
        raise ConfigError(
            f"{path} has several pipelines, {names}: name one, as in {path}:{pipelines[0].name}"
        )
    return pipelines[0]


def _replay_into(
    pipeline: Pipeline[Any], config: StreamsConfig, into: str, begin: Bound, finish: Bound
) -> tuple[str, dict[str, Any]]:
    """Replay a part of the log; what to say of it, in words and as JSON."""
    from headrace.streams.replay import replay as replay_into  # noqa: PLC0415  # see above

    with _shown() as (on_step, on_progress):
        done = replay_into(
            pipeline, config, into, begin=begin, finish=finish, on_step=on_step, on_progress=on_progress
        )
    line = f"replayed {done.offset_count:,} offsets of the log: {done.row_count:,} results in {into}"
    return line, {"into": into, "offset_count": done.offset_count, "row_count": done.row_count}


def _go_live(
    target: str, pipeline: Pipeline[Any], config: StreamsConfig, begin: Bound, *, swap: bool
) -> tuple[str, dict[str, Any]]:
    """Replay up to the present; what to say of it, in words and as JSON."""
    from headrace.streams.go_live import go_live  # noqa: PLC0415  # see above
    from headrace.streams.load import load_pipelines, split_target  # noqa: PLC0415  # see above

    path, _name = split_target(target)
    with _shown() as (on_step, _):
        live = go_live(
            pipeline,
            config,
            begin=begin,
            swap=swap,
            others=load_pipelines(str(path)) if swap else (),
            on_step=on_step,
        )
    swapped = "; the old results are gone" if live.is_swapped else ""
    line = f"replayed in {live.batch_count:,} batches{swapped}: `headrace run {target}` goes on from there"
    deleted = [
        {"topic": topic, "partition": partition, "before": offset}
        for (topic, partition), offset in live.deleted_before.items()
    ]
    return line, {
        "pipeline": pipeline.name,
        "batch_count": live.batch_count,
        "swapped": live.is_swapped,
        "deleted": deleted,
    }


@contextmanager
def _shown() -> Iterator[tuple[Callable[[str], None], Callable[[int, int], None]]]:
    """Show steps, and how many offsets of how many are done: by a bar on a terminal, by lines elsewhere."""
    if not err.is_terminal:
        yield lambda line: say(f"{line} ..."), _say_progress
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=err, transient=True) as progress:
        task = progress.add_task("replaying", total=None)
        yield (
            lambda line: progress.update(task, description=line),
            lambda done, total: progress.update(task, completed=done, total=total),
        )


def _say_progress(done: int, total: int) -> None:
    if 0 < done < total:
        say(f"{done:,} of {total:,} offsets are done")
