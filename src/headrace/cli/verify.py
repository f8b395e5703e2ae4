"""`headrace verify`: compute a pipeline's results again, and compare them with what it wrote."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Final

import typer

from headrace.cli.client import client_options
from headrace.cli.options import AsJson, Bootstrap, DataDir, SparkConf, spark_options
from headrace.cli.output import announce, print_json, print_rows, say
from headrace.config import StreamsConfig
from headrace.errors import ConfigError

if TYPE_CHECKING:
    from headrace.streams.comparison import Comparison

VALUE_LENGTH_MAX: Final = 200
"""A longer value is cut in the table; JSON has all of it."""
_VERDICTS: Final = {
    "equal": "what it wrote is what is computed again",
    "different": "what it wrote is not what is computed again",
    "undecided": "what it wrote could not be verified as a whole",
}


def verify(
    target: Annotated[str, typer.Argument(metavar="FILE:PIPELINE", help="Where the pipeline is.")],
    bootstrap: Bootstrap,
    data: DataDir,
    master: Annotated[str | None, typer.Option(help="A Spark cluster, such as spark://host:7077.")] = None,
    spark_conf: SparkConf = None,
    as_json: AsJson = False,
) -> None:
    """Compute a pipeline's results again from the log, and compare them with what it wrote.

    Covers what its checkpoint says was processed. Changes nothing, and may be done while the pipeline runs.
    Exit code 1: there are differences that should not be, or that can't be judged.
    """
    # Spark is an extra: only the commands that need it may import what needs it.
    from headrace.streams.load import load_pipelines, split_target  # noqa: PLC0415
    from headrace.streams.verify import verify as verify_pipeline  # noqa: PLC0415

    path, _name = split_target(target)
    pipelines = load_pipelines(target)
    if len(pipelines) != 1:
        names = ", ".join(pipeline.name for pipeline in pipelines)
        raise ConfigError(
            f"{path} has several pipelines ({names}): name one, as in {path}:{pipelines[0].name}"
        )
    config = StreamsConfig(
        bootstrap=bootstrap,
        data_dir=data,
        master=master,
        client_options=client_options(),
        spark_options=spark_options(spark_conf),
    )
    comparison = verify_pipeline(
        pipelines[0], config, others=load_pipelines(str(path)), on_step=lambda line: say(f"{line} ...")
    )
    _print(pipelines[0].name, comparison, as_json=as_json)
    if comparison.verdict != "equal":
        raise typer.Exit(1)


def _print(name: str, comparison: Comparison, *, as_json: bool) -> None:
    if as_json:
        print_json({"pipeline": name, "verdict": comparison.verdict, **asdict(comparison)})
        return
    listed = [
        {**asdict(each), "computed": _cut(each.computed), "written": _cut(each.written)}
        for each in comparison.differences
    ]
    if listed:
        columns = ("kind", "topic", "key", "computed", "written", "count", "judgement", "cause")
        print_rows(listed, columns=columns, as_json=False)
    left_off = sum(comparison.left_off.values())
    if left_off:
        announce(f"{left_off:,} differences more are not listed")
    for remark in comparison.remarks:
        say(f"note: {remark}")
    counts = (
        f"{comparison.computed_count:,} computed, {comparison.written_count:,} written, "
        f"{comparison.count('wrong'):,} wrong, {comparison.count('expected'):,} expected to differ, "
        f"{comparison.count('undecided'):,} undecided"
    )
    announce(f"{name}: {_VERDICTS[comparison.verdict]} ({counts})")


def _cut(value: str | None) -> str | None:
    if value is None or len(value) <= VALUE_LENGTH_MAX:
        return value
    return f"{value[:VALUE_LENGTH_MAX]}..."
