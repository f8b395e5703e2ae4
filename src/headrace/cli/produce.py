"""`headrace produce`: lines of standard input, or of a file, become records of a topic."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Final, Literal, TextIO

import typer
from rich.progress import Progress, TextColumn, TimeElapsedColumn

from headrace.cli.client import explain, producer
from headrace.cli.completion import complete_topic
from headrace.cli.line_format import AS_THEY_ARE, LineFormat
from headrace.cli.options import AsJson, Bootstrap
from headrace.cli.output import err, report
from headrace.cli.record_json import Header, OutgoingRecord, read_record_line
from headrace.cli.sender import Pace, Sender
from headrace.config import check_topic_name
from headrace.errors import ConfigError, FaultError

GIVE_UP_AFTER_MS: Final = 20_000
SHOWN_EVERY: Final = 1_000
"""How many records lie between two updates of the progress line."""

Compression = Literal["none", "gzip", "snappy", "lz4", "zstd"]
Input = Literal["lines", "json", "records"]


def produce(
    topic: Annotated[str, typer.Argument(help="The topic to write to.", autocompletion=complete_topic)],
    bootstrap: Bootstrap,
    file: Annotated[Path | None, typer.Option(exists=True, help="Read this file, not stdin.")] = None,
    input_format: Annotated[
        Input,
        typer.Option(
            "--input",
            help="lines: each is a value. json: these are checked. records: as `consume --json` prints.",
        ),
    ] = "lines",
    key: Annotated[str | None, typer.Option(help="The key of every record.")] = None,
    key_separator: Annotated[
        str | None, typer.Option(help="What stands before it in a line is the key.")
    ] = None,
    key_field: Annotated[str | None, typer.Option(help="Lines are JSON; this field is the key.")] = None,
    header: Annotated[list[str] | None, typer.Option(help="A header for every record, KEY=VALUE.")] = None,
    tombstone: Annotated[
        str | None, typer.Option(help="A value that reads like this becomes null, which deletes its key.")
    ] = None,
    partition: Annotated[int | None, typer.Option(min=0, help="Write to this partition.")] = None,
    rate: Annotated[float | None, typer.Option(min=0.001, help="At most so many records a second.")] = None,
    compression: Annotated[Compression, typer.Option(help="How batches are compressed.")] = "none",
    as_json: AsJson = False,
) -> None:
    """Write each line of standard input to a topic as one record; report when all are acknowledged."""
    line_format = LineFormat(
        key=key,
        key_separator=key_separator,
        key_field=key_field,
        tombstone=tombstone,
        must_be_json=input_format == "json",
    )
    line_format.check(reads_records=input_format == "records")
    check_topic_name(topic)
    headers = tuple(_header(text) for text in header or [])
    client = producer(
        bootstrap,
        {"compression.type": compression, "linger.ms": 5, "message.timeout.ms": GIVE_UP_AFTER_MS},
    )
    sender = Sender(
        client, topic, headers=headers, partition=partition, pace=None if rate is None else Pace(rate)
    )
    read = read_record_line if input_format == "records" else line_format.read
    try:
        with _lines(file) as lines, _progress(topic) as show:
            sender.send_all(_records(lines, read), show)
    finally:
        report(
            f"{sender.acknowledged_count} of {sender.sent_count} records acknowledged by {topic}",
            {"topic": topic, "sent": sender.sent_count, "acknowledged": sender.acknowledged_count},
            as_json=as_json,
        )
    _require_all_acknowledged(sender, bootstrap)


def _require_all_acknowledged(sender: Sender, bootstrap: str) -> None:
    if sender.first_error is not None:
        raise explain(sender.first_error, bootstrap)
    if sender.acknowledged_count < sender.sent_count:
        missing = sender.sent_count - sender.acknowledged_count
        raise FaultError(f"{missing} records were not acknowledged in time: they may or may not be there")


def _records(lines: Iterable[str], read: Callable[[str, int], OutgoingRecord]) -> Iterator[OutgoingRecord]:
    for number, line in enumerate(lines, start=1):
        text = line.rstrip("\r\n")
        if text:
            yield read(text, number)


@contextmanager
def _lines(file: Path | None) -> Iterator[TextIO]:
    """Lines of text. Bytes that are no text are kept as they are, in the way of `surrogateescape`."""
    opened = file.open("rb") if file is not None else nullcontext(sys.stdin.buffer)
    with opened as data:
        lines = TextIOWrapper(data, encoding="utf-8", errors=AS_THEY_ARE, newline="\n")
        yield lines
        lines.detach()


@contextmanager
def _progress(topic: str) -> Iterator[Callable[[int], None]]:
    """A line on the terminal that counts, where there is one to count on and nobody types into it."""
    if not err.is_terminal or sys.stdin.isatty():
        yield lambda _count: None
        return
    columns = (TextColumn(f"{topic}: {{task.completed:,}} records"), TimeElapsedColumn())
    with Progress(*columns, console=err, transient=True) as progress:
        task = progress.add_task(topic, total=None)

        def show(count: int) -> None:
            if count % SHOWN_EVERY == 0:
                progress.update(task, completed=count)

        yield show


def _header(text: str) -> Header:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ConfigError(f"--header {text!r} is not KEY=VALUE")
    return key, value.encode()
