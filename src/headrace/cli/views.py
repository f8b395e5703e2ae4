"""`headrace views`: the stores that follow the log, how far behind they are, and how they are put right.

A view is what a pipeline writes and is no topic: a table, a search index, a cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from headrace.cli.client import client_options
from headrace.cli.options import AsJson, Bootstrap, DataDir, ShufflePartitions, SparkConf, spark_options
from headrace.cli.output import print_rows, report, say
from headrace.cli.replay import replay, the_pipeline
from headrace.cli.verify import verify as verify_pipeline
from headrace.config import StreamsConfig
from headrace.driver.status import Status, read_statuses, status_dir
from headrace.driver.store_lag import StoreLag, StoreLagReader
from headrace.errors import ConfigError

if TYPE_CHECKING:
    from headrace.streams.pipeline import Pipeline
    from headrace.streams.source_check import SourceComparison

COLUMNS: Final = ("pipeline", "state", "kind", "store", "lag_rows", "lag_bytes", "lag_s", "updated_at")
TOPIC: Final = "topic"

app = typer.Typer(
    no_args_is_help=True, help="See, rebuild, verify and repair the stores that follow the log."
)

Target = Annotated[str, typer.Argument(metavar="FILE:PIPELINE", help="Where the pipeline is.")]
Master = Annotated[str | None, typer.Option(help="A Spark cluster, such as spark://host:7077.")]


@app.command("list")
def list_(data: DataDir, as_json: AsJson = False) -> None:
    """Show the stores that the pipelines of a data directory write, and how far behind the log they are.

    The bytes are estimated by the first records that a store has not seen yet.
    """
    statuses = [status.seen_now() for status in read_statuses(data) if status.writes_kind != TOPIC]
    rows = [_row(status, lag) for status, lag in _with_lags(statuses)]
    if not rows and not as_json:
        say(f"no pipeline with {status_dir(data)} writes a store: `headrace run FILE` runs one")
        return
    print_rows(rows, columns=COLUMNS, as_json=as_json)


@app.command()
def rebuild(
    target: Target,
    bootstrap: Bootstrap,
    data: DataDir,
    master: Master = None,
    shuffle_partitions: ShufflePartitions = 2,
    spark_conf: SparkConf = None,
    as_json: AsJson = False,
) -> None:
    """Build a store anew from the log, beside the present one, and put it in its place at once.

    Readers see the old rows until the new ones are all there. Stop the pipeline first; `headrace run` goes on
    from where the new store is. What was interrupted is finished by the same command.
    """
    _refuse_topics(the_pipeline(target))
    replay(
        target,
        bootstrap,
        data,
        swap=True,
        master=master,
        shuffle_partitions=shuffle_partitions,
        spark_conf=spark_conf,
        as_json=as_json,
    )


@app.command()
def verify(
    target: Target,
    bootstrap: Bootstrap,
    data: DataDir,
    source: Annotated[
        str | None,
        typer.Option(metavar="CAPTURE", help="Compare with the tables of this capture's database instead."),
    ] = None,
    master: Master = None,
    spark_conf: SparkConf = None,
    as_json: AsJson = False,
) -> None:
    """Compute what a store should hold from the log, and compare. Exit code 1 where it holds something else.

    Changes nothing, and may be done while the pipeline runs. With --source, what the log says is compared
    with the tables themselves, as of one position of the database's log, by ranges of keys.
    """
    pipeline = the_pipeline(target)
    _refuse_topics(pipeline)
    if source is None:
        verify_pipeline(target, bootstrap, data, master=master, spark_conf=spark_conf, as_json=as_json)
        return
    config = StreamsConfig(
        bootstrap=bootstrap,
        data_dir=data,
        master=master,
        client_options=client_options(),
        spark_options=spark_options(spark_conf),
    )
    found = _compared(pipeline, config, source)
    _print_compared(pipeline.name, source, found, as_json=as_json)
    if found.different_count:
        raise typer.Exit(1)


@app.command()
def repair(
    target: Target,
    bootstrap: Bootstrap,
    data: DataDir,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be written.")] = False,
    master: Master = None,
    spark_conf: SparkConf = None,
    as_json: AsJson = False,
) -> None:
    """Compare a store with the log by ranges of keys, and write those rows that differ, or remove them.

    Stop the pipeline first.
    """
    # Spark is an extra: only the commands that need it may import what needs it.
    from headrace.streams.load import load_pipelines, split_target  # noqa: PLC0415
    from headrace.streams.repair import repair as repair_store  # noqa: PLC0415

    pipeline = the_pipeline(target)
    path, _name = split_target(target)
    config = StreamsConfig(
        bootstrap=bootstrap,
        data_dir=data,
        master=master,
        client_options=client_options(),
        spark_options=spark_options(spark_conf),
    )
    done = repair_store(
        pipeline,
        config,
        others=load_pipelines(str(path)),
        dry_run=dry_run,
        on_step=lambda line: say(f"{line} ..."),
    )
    what = "would be written" if dry_run else "were written"
    line = (
        f"{pipeline.name}: {done.different_ranges:,} of {done.range_count:,} ranges differ; "
        f"{done.written_count:,} rows {what} and {done.removed_count:,} removed, of {done.row_count:,}"
    )
    if done.refused_count:
        line += f"; {done.refused_count:,} were refused by the store"
    report(line, {"pipeline": pipeline.name, "dry_run": dry_run, **asdict(done)}, as_json=as_json)


def _compared(pipeline: Pipeline[Any], config: StreamsConfig, capture: str) -> SourceComparison:
    # These are extras: see above.
    from headrace.cdc.captures import load_capture  # noqa: PLC0415
    from headrace.cli.view_source import snapshot_of  # noqa: PLC0415
    from headrace.streams.source_check import compare_with_source, refuse_other_sources  # noqa: PLC0415

    def on_step(line: str) -> None:
        say(f"{line} ...")

    captured = load_capture(config.data_dir, capture, client_options())
    topics = refuse_other_sources(pipeline, captured.prefix)
    with snapshot_of(captured, topics, on_step) as taken:
        return compare_with_source(pipeline, config, snapshots=taken.topics, lsn=taken.lsn, on_step=on_step)


def _print_compared(name: str, source: str, found: SourceComparison, *, as_json: bool) -> None:
    line = (
        f"{name}: {found.different_ranges:,} of {found.range_count:,} ranges differ from the database of "
        f"{source}; {found.different_count:,} rows of {found.row_count:,}"
    )
    if not as_json and found.examples:
        rows = [asdict(each) for each in found.examples]
        print_rows(rows, columns=("key", "of_source", "of_log"), as_json=False)
    report(line, {"pipeline": name, "source": source, **asdict(found)}, as_json=as_json)


def _with_lags(statuses: Sequence[Status]) -> Iterator[tuple[Status, StoreLag | None]]:
    with ExitStack() as held:
        readers: dict[str, StoreLagReader] = {}
        for status in statuses:
            if status.bootstrap not in readers:
                reader = StoreLagReader(status.bootstrap, client_options())
                readers[status.bootstrap] = held.enter_context(closing(reader))
            yield status, readers[status.bootstrap].lag(status.next_offsets) if status.next_offsets else None


def _row(status: Status, lag: StoreLag | None) -> dict[str, object]:
    return {
        "pipeline": status.name,
        "state": status.state,
        "kind": status.writes_kind,
        "store": status.writes,
        "lag_rows": None if lag is None else lag.rows,
        "lag_bytes": None if lag is None else lag.bytes,
        "lag_s": None if lag is None else round(lag.seconds, 1),
        "updated_at": status.updated_at.isoformat(timespec="seconds"),
        "reads": list(status.reads),
        "last_error": status.last_error,
    }


def _refuse_topics(pipeline: Pipeline[Any]) -> None:
    from headrace.streams.topic import Topic  # noqa: PLC0415  # see above

    if isinstance(pipeline.writes, Topic):
        raise ConfigError(
            f"pipeline {pipeline.name} writes the topic {pipeline.writes.name}, which is no view: use "
            "`headrace replay` and `headrace verify` for topics"
        )
