"""`headrace events`: look into an event store: what happened, the state that follows from it, now and then.

What the store needs beyond Headrace itself is an extra, so only the commands that need it import it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from headrace.cli.event_file import require_events
from headrace.cli.options import AsJson
from headrace.cli.output import print_json, print_rows, say
from headrace.config import default_postgres_dsn
from headrace.errors import ConfigError

if TYPE_CHECKING:
    from headrace.cli.event_store import OpenStore

app = typer.Typer(no_args_is_help=True, help="Look into an event store.")

EVENT_COLUMNS: Final = ("position", "stream", "version", "type", "recorded_at", "data")
COUNT_MAX: Final = 5_000

Dsn = Annotated[
    str | None,
    typer.Option(
        default_factory=default_postgres_dsn,
        show_default="HEADRACE_POSTGRES",
        help="The database: postgresql://user@host:5432/database. Passwords may lie in ~/.pgpass.",
    ),
]
Schema = Annotated[str, typer.Option(help="The schema that the store's tables are in.")]
Target = Annotated[str, typer.Argument(metavar="FILE:DECIDER", help="The code: bank.py:Account.")]
File = Annotated[Path, typer.Argument(help="A Python file with the store's deciders.")]
Stream = Annotated[str, typer.Argument(help="A stream, such as account-42.")]
Count = Annotated[int, typer.Option("--count", min=1, max=COUNT_MAX, help="At most so many.")]
SCHEMA: Final = "headrace_events"


@app.command("streams")
def list_streams(
    dsn: Dsn,
    category: Annotated[str | None, typer.Option(help="Only those of one kind, such as account.")] = None,
    after: Annotated[str, typer.Option(help="Only those whose name follows on this one.")] = "",
    count: Count = 100,
    schema: Schema = SCHEMA,
    as_json: AsJson = False,
) -> None:
    """List streams by name, with their versions."""
    with _open(dsn, schema) as store:
        found = store.journal.streams(category=category, after=after, limit=count)
    rows = [{"stream": each.stream, "version": each.version, "position": each.position} for each in found]
    print_rows(rows, columns=("stream", "version", "position"), as_json=as_json)
    if len(rows) == count and not as_json:
        say(f"there may be more: --after {rows[-1]['stream']}")


@app.command("read")
def read_events(
    dsn: Dsn,
    stream: Annotated[str | None, typer.Argument(help="One stream; all, where none is named.")] = None,
    type_: Annotated[
        list[str] | None, typer.Option("--type", help="Only events of this type; may be given several times.")
    ] = None,
    tag: Annotated[
        list[str] | None, typer.Option(help="Only events with this tag, such as customer:42; all of several.")
    ] = None,
    after: Annotated[
        int, typer.Option(min=0, help="Only events after this position; of one stream, after this version.")
    ] = 0,
    count: Count = 100,
    schema: Schema = SCHEMA,
    as_json: AsJson = False,
) -> None:
    """Show events as they are stored, in their order. What is personal stays encrypted."""
    if stream is not None and (type_ or tag):
        raise ConfigError("--type and --tag look through all streams: name no stream, or leave them out")
    with _open(dsn, schema) as store:
        if stream is not None:
            found = store.journal.read_stream(stream, after_version=after, limit=count)
        else:
            types, tags = tuple(type_ or ()), tuple(tag or ())
            found = store.journal.read_all(after=after, types=types, tags=tags, limit=count)
    rows = [_stored(each) for each in found]
    if as_json:
        print_json(rows)
        return
    told = [{**row, "data": json.dumps(row["data"], ensure_ascii=False)} for row in rows]
    print_rows(told, columns=EVENT_COLUMNS, as_json=False)
    if len(rows) == count:
        last = rows[-1]["position"] if stream is None else rows[-1]["version"]
        say(f"there may be more: --after {last}")


def _stored(event: Any) -> dict[str, Any]:
    return {
        "position": event.position,
        "stream": event.stream,
        "version": event.version,
        "id": str(event.id),
        "type": event.type,
        "schema_version": event.schema_version,
        "recorded_at": event.recorded_at.isoformat(),
        "tags": list(event.tags),
        "metadata": json.loads(event.metadata),
        "data": json.loads(event.data),
    }


def _open(dsn: str | None, schema: str) -> OpenStore:
    if not dsn:
        raise ConfigError(
            "which database? Name it with --dsn postgresql://user@host:5432/database, or in HEADRACE_POSTGRES"
        )
    require_events()
    from headrace.cli.event_store import OpenStore  # noqa: PLC0415  # see above

    return OpenStore(dsn, schema)
