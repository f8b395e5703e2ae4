"""`headrace capture`: publish what changes in a PostgreSQL database, as change events on topics.

What a capture needs beyond Headrace itself is an extra, so only the commands that need it import it.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.markup import escape

from headrace.cli.options import AsJson, Bootstrap, DataDir, LogFormatOption, LogLevelOption, Yes
from headrace.cli.output import print_rows, report, say
from headrace.cli.times import parse_duration_ms
from headrace.config import CaptureConfig, SnapshotMode, default_postgres_dsn
from headrace.errors import ConfigError

app = typer.Typer(no_args_is_help=True, help="Publish what changes in a PostgreSQL database.")

COLUMNS = ("capture", "state", "events", "lsn", "lag_bytes", "kept_bytes", "snapshot")

Name = Annotated[str, typer.Argument(help="The capture's name.")]
Dsn = Annotated[
    str | None,
    typer.Option(
        default_factory=default_postgres_dsn,
        show_default="HEADRACE_POSTGRES",
        help="The database: postgresql://user@host:5432/database. Passwords may lie in ~/.pgpass.",
    ),
]
Tables = Annotated[
    list[str] | None, typer.Option("--table", help="A table to capture, such as public.orders or public.*.")
]
ExcludeTables = Annotated[
    list[str] | None, typer.Option("--exclude-table", help="A table not to capture; may be a pattern.")
]
Columns = Annotated[
    list[str] | None,
    typer.Option("--column", help="Capture only such columns of their table: public.users.id."),
]
ExcludeColumns = Annotated[
    list[str] | None, typer.Option("--exclude-column", help="A column not to capture: public.users.password.")
]
Masks = Annotated[
    list[str] | None,
    typer.Option("--mask", metavar="COLUMN=TEXT", help="Publish this text in place of a column's values."),
]
Hashes = Annotated[
    list[str] | None,
    typer.Option("--hash", metavar="COLUMN", help="Publish a keyed hash in place of a column's values."),
]
HashSecret = Annotated[
    Path | None,
    typer.Option(help="A file with the secret that values are hashed with, 16 characters or more."),
]
Snapshot = Annotated[
    SnapshotMode,
    typer.Option(help="initial: rows first, then changes. never: changes only. only: rows, then stop."),
]
Prefix = Annotated[str, typer.Option(help="What its topics begin with.", show_default="the name")]
Slot = Annotated[str, typer.Option(help="The replication slot.", show_default="headrace_NAME")]
Publication = Annotated[
    str, typer.Option(help="The publication, made if it is not there.", show_default="like the slot")
]
OutboxTable = Annotated[
    str | None, typer.Option("--outbox", help="A table whose rows are events for topics of their own.")
]
Partitions = Annotated[
    int, typer.Option(min=1, help="Partitions of new topics; a table that is truncated needs 1.")
]
Keep = Annotated[
    str,
    typer.Option(
        help="What new topics of tables keep: all events, the last version of each row, or those of a time.",
        metavar="all|last|7d",
    ),
]
Numerics = Annotated[
    Literal["text", "exact"], typer.Option(help="Numerics readable, or as bytes like Debezium's default.")
]
HeartbeatS = Annotated[
    float,
    typer.Option("--heartbeat", min=0, help="Seconds between heartbeats in the database's log; 0: none."),
]
NewSnapshot = Annotated[
    bool,
    typer.Option(
        "--new-snapshot", help="Make a new slot and publish all rows anew; for a slot that was lost."
    ),
]
ForgetDatabase = Annotated[
    bool,
    typer.Option("--forget-database", help="Leave the database alone: for one that is gone for good."),
]
Where = Annotated[str | None, typer.Option(help='Only rows for which this holds, in SQL: "id < 1000".')]


@app.command("add")
def add_capture(
    name: Name,
    dsn: Dsn,
    bootstrap: Bootstrap,
    data: DataDir,
    table: Tables = None,
    exclude_table: ExcludeTables = None,
    column: Columns = None,
    exclude_column: ExcludeColumns = None,
    mask: Masks = None,
    hash_: Hashes = None,
    hash_secret: HashSecret = None,
    snapshot: Snapshot = "initial",
    prefix: Prefix = "",
    slot: Slot = "",
    publication: Publication = "",
    outbox: OutboxTable = None,
    partitions: Partitions = 1,
    keep: Keep = "all",
    numerics: Numerics = "text",
    heartbeat: HeartbeatS = 10.0,
    as_json: AsJson = False,
) -> None:
    """Write down what to capture, after a look at the database. `headrace capture start` runs it."""
    if not dsn:
        raise ConfigError(
            "which database? Name it with --dsn postgresql://user@host:5432/database, or in HEADRACE_POSTGRES"
        )
    config = CaptureConfig(
        name=name,
        dsn=dsn,
        bootstrap=bootstrap,
        data_dir=data,
        include_tables=tuple(table or ()),
        exclude_tables=tuple(exclude_table or ()),
        include_columns=tuple(column or ()),
        exclude_columns=tuple(exclude_column or ()),
        mask_columns=_masks(mask or []),
        hash_columns=tuple(hash_ or ()),
        hash_secret="" if hash_secret is None else _secret(hash_secret),
        snapshot=snapshot,
        prefix=prefix,
        slot=slot,
        publication=publication,
        outbox_table=outbox,
        partition_count=partitions,
        keeps_last_only=keep == "last",
        retention_ms=_retention_ms(keep),
        numerics=numerics,
        heartbeat_s=heartbeat,
    )
    from headrace.cli.capture_runner import check, save  # noqa: PLC0415  # see above

    tables = check(config)
    save(config)
    report(
        f"capture {name} takes in {', '.join(tables)}: `headrace capture start {name}` runs it",
        {"capture": name, "tables": tables},
        as_json=as_json,
    )


@app.command("start")
def start_capture(
    name: Name,
    data: DataDir,
    new_snapshot: NewSnapshot = False,
    log_format: LogFormatOption = "text",
    log_level: LogLevelOption = "info",
) -> None:
    """Run a capture until Ctrl-C, from where it was; the first time, from the rows that are there."""
    from headrace.cli.capture_runner import load, run  # noqa: PLC0415  # see above
    from headrace.logs import configure_logging  # noqa: PLC0415  # only this command logs

    configure_logging(log_format, log_level)
    run(load(data, name), new_snapshot=new_snapshot)


@app.command("status")
def capture_status(
    data: DataDir,
    name: Annotated[str | None, typer.Argument(help="One of them.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show captures: what they do, what is published, how far behind they are, and what went wrong."""
    from headrace.cli.capture_runner import statuses  # noqa: PLC0415  # see above

    found = statuses(data, name)
    rows = [
        {
            "capture": each.name,
            "state": each.state,
            "events": each.event_count,
            "lsn": each.lsn,
            "lag_bytes": each.lag_bytes,
            "kept_bytes": each.kept_bytes,
            "snapshot": ", ".join(f"{table['table']} {table['rows']}" for table in each.tables) or None,
            **({key: value for key, value in asdict(each).items() if key != "name"} if as_json else {}),
        }
        for each in found
    ]
    if not rows and not as_json:
        say(f"{data} has no captures: `headrace capture add NAME --dsn ...` makes one, --data says where")
        return
    print_rows(rows, columns=COLUMNS, as_json=as_json)
    for each in found if not as_json else []:
        if each.last_error:
            say(f"{each.name}: {escape(each.last_error)}")


@app.command("snapshot")
def snapshot_tables(
    name: Name,
    table: Annotated[list[str], typer.Argument(help="Tables, such as public.orders.")],
    data: DataDir,
    where: Where = None,
    as_json: AsJson = False,
) -> None:
    """Have the rows of tables published anew, while changes go on."""
    from headrace.cli.capture_runner import ask_snapshot, load  # noqa: PLC0415  # see above

    request = ask_snapshot(load(data, name), table, where)
    report(
        f"capture {name} will publish the rows of {', '.join(table)} as soon as it runs",
        {"capture": name, "request": request, "tables": table},
        as_json=as_json,
    )


@app.command("pause")
def pause_capture(name: Name, data: DataDir, as_json: AsJson = False) -> None:
    """Have a capture publish nothing until it is resumed. The database keeps what changes meanwhile."""
    from headrace.cli.capture_runner import load, set_paused  # noqa: PLC0415  # see above

    is_new = set_paused(load(data, name), paused=True)
    report(
        f"capture {name} {'pauses' if is_new else 'is paused already'}: the database keeps its log until "
        f"`headrace capture resume {name}`",
        {"capture": name, "paused": True},
        as_json=as_json,
    )


@app.command("resume")
def resume_capture(name: Name, data: DataDir, as_json: AsJson = False) -> None:
    """Have a paused capture go on from where it was."""
    from headrace.cli.capture_runner import load, set_paused  # noqa: PLC0415  # see above

    is_new = set_paused(load(data, name), paused=False)
    report(
        f"capture {name} {'goes on' if is_new else 'was not paused'}",
        {"capture": name, "paused": False},
        as_json=as_json,
    )


@app.command("remove")
def remove_capture(
    name: Name,
    data: DataDir,
    forget_database: ForgetDatabase = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Drop the slot and the publication that a capture has made, and forget it. Topics of tables stay."""
    from headrace.cli.capture_runner import load, remove  # noqa: PLC0415  # see above

    config = load(data, name)
    if forget_database:
        _forget(config, yes=yes, as_json=as_json)
        return
    if not yes:
        typer.confirm(f"Remove capture {name} with its slot {config.slot}?", abort=True, err=True)
    left = remove(config)
    others = f". Left, as the capture has not made it: {' and '.join(left)}" if left else ""
    report(
        f"capture {name} is gone; its topics are there{others}",
        {"capture": name, "removed": True, "left": left},
        as_json=as_json,
    )


def _forget(config: CaptureConfig, *, yes: bool, as_json: bool) -> None:
    from headrace.cli.capture_runner import forget  # noqa: PLC0415  # see above

    if not yes:
        typer.confirm(
            f"Forget capture {config.name} and leave its slot {config.slot} in the database?",
            abort=True,
            err=True,
        )
    left = forget(config)
    report(
        f"capture {config.name} is gone; its topics are there. The database was not asked. Should it come "
        f"back, it keeps its log for the slot until its disk is full: there, run {' '.join(left.statements)}",
        {"capture": config.name, "removed": True, "left": left.names, "sql": left.statements},
        as_json=as_json,
    )


def _retention_ms(keep: str) -> int:
    if keep in {"all", "last"}:
        return -1
    try:
        return parse_duration_ms(keep)
    except ConfigError as error:
        raise ConfigError(f"--keep {keep!r}: write all, last, or a time such as 7d") from error


def _masks(given: list[str]) -> dict[str, str]:
    masks = {}
    for each in given:
        column, equals, text = each.partition("=")
        if not equals or not column:
            raise ConfigError(f"--mask {each!r}: write COLUMN=TEXT, such as public.users.email=***")
        masks[column] = text
    return masks


def _secret(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError as error:
        raise ConfigError(f"the secret {path} can't be read: {error.strerror}") from error
