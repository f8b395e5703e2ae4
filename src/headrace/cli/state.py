"""`headrace state`: what a pipeline keeps of a key."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.options import AsJson, DataDir
from headrace.cli.output import announce, print_json, print_rows, say
from headrace.config import StreamsConfig
from headrace.errors import ConfigError

if TYPE_CHECKING:
    from headrace.streams.state import KeptState


def state(
    target: Annotated[str, typer.Argument(metavar="FILE:PIPELINE", help="Where the pipeline is.")],
    data: DataDir,
    key: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[COLUMN=]VALUE",
            help="The key; with its column, once for each, where it has several. Without it, the first keys.",
        ),
    ] = None,
    batch: Annotated[
        int | None, typer.Option(min=0, help="As it was after this batch; else after the last one.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what a pipeline keeps of a key: the state of `hr.keyed` and of windows.

    Reads the checkpoint, and changes nothing; the pipeline may run meanwhile.
    """
    # Spark is an extra: only the commands that need it may import what needs it.
    from headrace.streams.buckets.kept_rows import parse_key  # noqa: PLC0415
    from headrace.streams.load import load_pipelines, split_target  # noqa: PLC0415
    from headrace.streams.state import ROWS_MAX, read_state  # noqa: PLC0415

    path, _name = split_target(target)
    pipelines = load_pipelines(target)
    if len(pipelines) != 1:
        names = ", ".join(pipeline.name for pipeline in pipelines)
        raise ConfigError(
            f"{path} has several pipelines ({names}): name one, as in {path}:{pipelines[0].name}"
        )
    kept = read_state(pipelines[0].name, StreamsConfig(data_dir=data), parse_key(key or ()), batch=batch)
    _print(pipelines[0].name, kept, as_json=as_json)
    if len(kept.rows) == ROWS_MAX:
        say(f"note: only the first {ROWS_MAX} rows are shown; name a key")


def _print(name: str, kept: KeptState, *, as_json: bool) -> None:
    if as_json:
        print_json(
            {"pipeline": name, "batch": kept.batch, "rows": [_plain(asdict(row)) for row in kept.rows]}
        )
        return
    announce(f"{name} after batch {kept.batch}: {len(kept.rows)} rows")
    for operator, table in dict.fromkeys((row.operator, row.table) for row in kept.rows):
        rows = [_plain(row.row) for row in kept.rows if (row.operator, row.table) == (operator, table)]
        columns = list(dict.fromkeys(column for row in rows for column in row))
        announce(f"{operator}, {table}:")
        print_rows(
            [{column: row.get(column) for column in columns} for row in rows], columns=columns, as_json=False
        )


def _plain(value: Any) -> Any:
    """With what JSON has."""
    if isinstance(value, dict):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat() if value.tzinfo is not None else value.isoformat()
    if isinstance(value, date):
        return value.isoformat()
    return value if isinstance(value, str | int | float | bool | None) else str(value)
