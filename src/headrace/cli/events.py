"""`headrace events`: look into an event store: what happened, the state that follows from it, now and then.

What the store needs beyond Headrace itself is an extra, so only the commands that need it import it.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from headrace.cli.event_file import EventFile, load_event_file, require_events, split_target
from headrace.cli.options import AsJson, Yes
from headrace.cli.output import print_json, print_rows, report, say
from headrace.cli.times import parse_moment_ms
from headrace.clock import SystemClock
from headrace.config import default_postgres_dsn
from headrace.errors import ConfigError

if TYPE_CHECKING:
    from headrace.cli.event_store import OpenStore
    from headrace.events import Decider

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


@app.command("state")
def show_state(
    target: Target,
    stream: Stream,
    dsn: Dsn,
    as_of: Annotated[
        str | None,
        typer.Option(help="What was known then: 2026-03-01, 2026-03-01T09:30:00Z, or 15m for ago."),
    ] = None,
    version: Annotated[int | None, typer.Option(min=0, help="After so many events of the stream.")] = None,
    position: Annotated[int | None, typer.Option(min=0, help="After so many events of the log.")] = None,
    schema: Schema = SCHEMA,
    as_json: AsJson = False,
) -> None:
    """Show the state that a stream's events make, now or at a moment of the past."""
    from headrace.cli.event_views import shown_state  # noqa: PLC0415  # see above

    file, decider = _target(target)
    with _open(dsn, schema) as opened:
        store = opened.with_file(file, decider)
        if as_of is None and version is None and position is None:
            loaded = store.load(stream)
        else:
            time = None if as_of is None else _moment(as_of)
            loaded = store.as_of(stream, time=time, version=version, position=position)
    state = shown_state(loaded.state)
    if as_json:
        print_json({"stream": stream, "version": loaded.version, "state": state})
        return
    rows = [{"field": name, "value": _text(value)} for name, value in state.items()]
    print_rows(rows, columns=("field", "value"), as_json=False)
    say(f"{stream} at version {loaded.version}")


@app.command("explain")
def explain_state(
    target: Target,
    stream: Stream,
    dsn: Dsn,
    field: Annotated[str | None, typer.Option(help="All changes of one field, instead.")] = None,
    schema: Schema = SCHEMA,
    as_json: AsJson = False,
) -> None:
    """Show which event made each field of a stream's state what it is."""
    from headrace.cli.event_views import cause_rows, change_rows  # noqa: PLC0415  # see above

    file, decider = _target(target)
    with _open(dsn, schema) as opened:
        explained = opened.with_file(file, decider).explain(stream)
    rows = cause_rows(explained) if field is None else change_rows(explained, field)
    columns = ("field", "value") if field is None else ("before", "value")
    if as_json:
        print_json({"stream": stream, "version": explained.version, "changes": rows})
        return
    told = [{name: _text(value) if name in columns else value for name, value in row.items()} for row in rows]
    print_rows(told, columns=(*columns, "version", "type", "recorded_at"), as_json=False)


@app.command("versions")
def show_versions(dsn: Dsn, schema: Schema = SCHEMA, as_json: AsJson = False) -> None:
    """Count the events of each type and version. Reads all of them."""
    with _open(dsn, schema) as opened:
        found = opened.journal.types()
    rows = [
        {
            "type": each.type,
            "version": each.schema_version,
            "events": each.count,
            "last_position": each.last_position,
        }
        for each in found
    ]
    print_rows(rows, columns=("type", "version", "events", "last_position"), as_json=as_json)


@app.command("check")
def check_file(file: File, dsn: Dsn, schema: Schema = SCHEMA, as_json: AsJson = False) -> None:
    """Check that a file's code can read every type and version that is stored."""
    loaded = load_event_file(file)
    with _open(dsn, schema) as opened:
        opened.with_file(loaded).check_readable()
        count = len(opened.journal.stored_types())
    report(
        f"{file} reads all that is stored: {count} types and versions",
        {"file": str(file), "readable": True, "stored_types": count},
        as_json=as_json,
    )


@app.command("compare")
def compare_deciders(
    file: File,
    left: Annotated[str, typer.Argument(help="One decider of the file.")],
    right: Annotated[str, typer.Argument(help="Another one, of the same category.")],
    dsn: Dsn,
    schema: Schema = SCHEMA,
    as_json: AsJson = False,
) -> None:
    """Run two versions of the code over all that happened, and list the states that come out different."""
    from headrace.cli.event_views import compare  # noqa: PLC0415  # see above

    loaded = load_event_file(file)
    with _open(dsn, schema) as opened:
        store = opened.with_file(loaded, loaded.decider(left))
        result = compare(store, loaded.decider(left), loaded.decider(right))
    if as_json:
        print_json(result)
        return
    rows = [
        {
            "stream": each["stream"],
            "field": each["field"],
            left: _text(each["left"]),
            right: _text(each["right"]),
        }
        for each in result["differences"]
    ]
    print_rows(rows, columns=("stream", "field", left, right), as_json=False)
    say(
        f"{result['difference_count']} fields differ, in {result['different_stream_count']} of "
        f"{result['stream_count']} streams, after {result['event_count']} events"
    )


@app.command("rebuild")
def rebuild_projection(
    target: Annotated[str, typer.Argument(metavar="FILE:READ_MODEL", help="The code: bank.py:balances.")],
    dsn: Dsn,
    schema: Schema = SCHEMA,
    as_json: AsJson = False,
) -> None:
    """Build a read model anew from the first event on, beside the present one, and let it take its place."""
    from headrace.cli.event_views import rebuild  # noqa: PLC0415  # see above

    path, name = split_target(target)
    loaded = load_event_file(path)
    if name not in loaded.projections:
        known = ", ".join(loaded.projections) or "none"
        raise ConfigError(f"{path} has no read model {name!r}: it has {known}")
    with _open(dsn, schema) as opened:
        made = rebuild(opened.with_file(loaded), opened.dsn, loaded.projections[name])
    report(
        f"{name} was built anew up to position {made['position']}, as generation {made['generation']}",
        made,
        as_json=as_json,
    )


@app.command("forget")
def forget_subject(
    subject: Annotated[str, typer.Argument(help="Whose data to forget, such as customer-42.")],
    dsn: Dsn,
    text: Annotated[
        list[str] | None,
        typer.Option(help="What must not be found anywhere, such as a name. May be repeated."),
    ] = None,
    yes: Yes = False,
    schema: Schema = SCHEMA,
    as_json: AsJson = False,
) -> None:
    """Make the personal data of somebody unreadable, for good, look for what is left, and print a receipt.

    The check reads all events. Texts are looked for in read models, processes, effects and dead letters, too.
    """
    from headrace.cli.event_views import forget, told_receipt  # noqa: PLC0415  # see above

    with _open(dsn, schema) as opened:
        if not yes:
            typer.confirm(
                f"Destroy the key of {subject}? What it has encrypted can be read by nobody afterwards.",
                abort=True,
                err=True,
            )
        receipt = forget(opened.bare(), opened.dsn, subject, text or ())
    report(told_receipt(receipt), receipt, as_json=as_json)


def _target(target: str) -> tuple[EventFile, Decider]:
    path, name = split_target(target)
    file = load_event_file(path)
    return file, file.decider(name)


def _moment(text: str) -> datetime:
    now_ms = SystemClock().now_ms()
    return datetime.fromtimestamp(parse_moment_ms(text, now_ms=now_ms) / 1000, tz=UTC)


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


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
    require_events()
    from headrace.cli.event_store import OpenStore, require_dsn  # noqa: PLC0415  # see above

    return OpenStore(require_dsn(dsn), schema)
