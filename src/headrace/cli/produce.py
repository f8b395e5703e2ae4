"""`headrace produce`: lines of standard input, or of a file, become records of a topic."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Final, Literal, TextIO

import typer
from confluent_kafka import KafkaError, Message, Producer

from headrace.cli.client import explain, producer
from headrace.cli.options import Bootstrap
from headrace.cli.output import say
from headrace.config import check_topic_name
from headrace.errors import ConfigError

FLUSH_TIMEOUT_S: Final = 30.0
GIVE_UP_AFTER_MS: Final = 20_000
AS_THEY_ARE: Final = "surrogateescape"

Compression = Literal["none", "gzip", "snappy", "lz4", "zstd"]


@dataclass(frozen=True, slots=True)
class LineFormat:
    """How a line is cut into key and value."""

    key_separator: str | None = None
    key_field: str | None = None

    def split(self, line: str, number: int) -> tuple[str | None, str]:
        """The key, where there is one, and the value."""
        if self.key_separator is not None:
            key, separator, value = line.partition(self.key_separator)
            if not separator:
                raise ConfigError(f"line {number} has no key separator {self.key_separator!r}: {line[:80]!r}")
            return key, value
        if self.key_field is not None:
            return self._json_key(line, number), line
        return None, line

    def _json_key(self, line: str, number: int) -> str:
        try:
            value = json.loads(line)
        except json.JSONDecodeError as error:
            raise ConfigError(f"line {number} is not JSON ({error.msg}): {line[:80]!r}") from error
        if not isinstance(value, dict) or value.get(self.key_field) is None:
            raise ConfigError(f"line {number} has no field {self.key_field!r} to use as key: {line[:80]!r}")
        return str(value[self.key_field])


class Sender:
    """Sends records to a topic, counts what was acknowledged, and keeps the first error."""

    def __init__(self, client: Producer, topic: str, headers: list[tuple[str, str | bytes | None]]) -> None:
        self._client = client
        self._topic = topic
        self._headers = headers
        self.sent_count = 0
        self.acknowledged_count = 0
        self.first_error: KafkaError | None = None

    def send(self, key: str | None, value: str) -> None:
        """Hand one record to the producer, waiting while its buffer is full."""
        while True:
            try:
                self._client.produce(
                    self._topic,
                    _bytes(value),
                    None if key is None else _bytes(key),
                    on_delivery=self._on_delivery,
                    headers=self._headers,
                )
            except BufferError:
                self._client.poll(0.1)
            else:
                self.sent_count += 1
                self._client.poll(0)
                return

    def send_all(self, records: Iterator[tuple[str | None, str]]) -> None:
        """Send until the records end or one can't be delivered. A bad line does not lose those before it."""
        try:
            for key, value in records:
                self.send(key, value)
                if self.first_error is not None:
                    return
        finally:
            self._client.flush(FLUSH_TIMEOUT_S)

    def _on_delivery(self, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            self.acknowledged_count += 1
        elif self.first_error is None:
            self.first_error = error


def produce(
    topic: Annotated[str, typer.Argument(help="The topic to write to.")],
    bootstrap: Bootstrap,
    file: Annotated[Path | None, typer.Option(exists=True, help="Read this file, not stdin.")] = None,
    key_separator: Annotated[
        str | None, typer.Option(help="What stands before it in a line is the key.")
    ] = None,
    key_field: Annotated[str | None, typer.Option(help="Lines are JSON; this field is the key.")] = None,
    header: Annotated[list[str] | None, typer.Option(help="A header for every record, KEY=VALUE.")] = None,
    compression: Annotated[Compression, typer.Option(help="How batches are compressed.")] = "none",
) -> None:
    """Write each line of standard input to a topic as one record; report when all are acknowledged."""
    if key_separator is not None and key_field is not None:
        raise ConfigError("use --key-separator or --key-field, not both")
    check_topic_name(topic)
    headers = [_header(text) for text in header or []]
    client = producer(
        bootstrap,
        {"compression.type": compression, "linger.ms": 5, "message.timeout.ms": GIVE_UP_AFTER_MS},
    )
    sender = Sender(client, topic, headers)
    try:
        with _lines(file) as lines:
            sender.send_all(_records(lines, LineFormat(key_separator, key_field)))
    finally:
        say(f"{sender.acknowledged_count} of {sender.sent_count} records acknowledged by {topic}")
    if sender.first_error is not None:
        raise explain(sender.first_error, bootstrap)


def _records(lines: Iterable[str], line_format: LineFormat) -> Iterator[tuple[str | None, str]]:
    for number, line in enumerate(lines, start=1):
        text = line.rstrip("\r\n")
        if text:
            yield line_format.split(text, number)


@contextmanager
def _lines(file: Path | None) -> Iterator[TextIO]:
    """Lines of text. Bytes that are no text are kept as they are, in the way of `surrogateescape`."""
    opened = file.open("rb") if file is not None else nullcontext(sys.stdin.buffer)
    with opened as data:
        lines = TextIOWrapper(data, encoding="utf-8", errors=AS_THEY_ARE, newline="\n")
        yield lines
        lines.detach()


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", AS_THEY_ARE)


def _header(text: str) -> tuple[str, str | bytes | None]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ConfigError(f"--header {text!r} is not KEY=VALUE")
    return key, value
