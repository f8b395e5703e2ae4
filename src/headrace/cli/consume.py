"""`headrace consume`: print the records of a topic, from any place in it, or as they come."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Annotated, Final, Literal, cast

import typer
from confluent_kafka import Consumer, KafkaError, Message

from headrace.cli.client import admin_client, consumer, explain
from headrace.cli.completion import complete_group, complete_topic
from headrace.cli.options import Bootstrap
from headrace.cli.output import say
from headrace.cli.record_filter import Condition, RecordFilter
from headrace.cli.record_json import record_line
from headrace.cli.start import Start, partitions_to_read
from headrace.errors import BrokerUnavailable, ConfigError

POLL_S: Final = 0.2

Format = Literal["value", "key-value", "json"]


TopicToRead = Annotated[str, typer.Argument(help="The topic to read.", autocompletion=complete_topic)]
FromBeginning = Annotated[
    bool, typer.Option("--from-beginning", help="Start at the oldest record, not with new ones.")
]
FromOffset = Annotated[
    list[str] | None,
    typer.Option(help="Start at this offset in every partition; PARTITION:OFFSET for one, repeatable."),
]
FromTime = Annotated[
    str | None, typer.Option(help="Start at this moment: 2026-11-16T09:30:00Z, or 15m for that long ago.")
]
Tail = Annotated[int | None, typer.Option(min=1, help="Start with the last so many of each partition.")]
Partitions = Annotated[list[int] | None, typer.Option(help="Read this partition only; repeatable.")]
Group = Annotated[
    str | None,
    typer.Option(
        help="Read as a member of this group and commit what was printed.", autocompletion=complete_group
    ),
]
Count = Annotated[int | None, typer.Option("--count", "-n", min=1, help="Stop after so many.")]
UntilEnd = Annotated[
    bool, typer.Option("--until-end", help="Stop at the newest record instead of waiting for more.")
]
Idle = Annotated[
    float | None, typer.Option("--idle", min=0.1, help="Stop when nothing came for so many seconds.")
]
Keys = Annotated[list[str] | None, typer.Option(help="Print records with this key only; repeatable.")]
Where = Annotated[
    str | None,
    typer.Option(help="Print records whose JSON value passes: '@.amount > 100', or a JSONPath."),
]
Uncommitted = Annotated[
    bool, typer.Option("--uncommitted", help="Show records of open and aborted transactions too.")
]
FormatOption = Annotated[Format, typer.Option("--format", help="What to print of a record.")]
AsJson = Annotated[bool, typer.Option("--json", help="The same as --format json.")]


def consume(
    topic: TopicToRead,
    bootstrap: Bootstrap,
    from_beginning: FromBeginning = False,
    from_offset: FromOffset = None,
    from_time: FromTime = None,
    tail: Tail = None,
    partition: Partitions = None,
    group: Group = None,
    count: Count = None,
    until_end: UntilEnd = False,
    idle_s: Idle = None,
    key: Keys = None,
    where: Where = None,
    uncommitted: Uncommitted = False,
    record_format: FormatOption = "value",
    as_json: AsJson = False,
) -> None:
    """Print the records of a topic, one a line."""
    start = Start.parse(from_beginning=from_beginning, offsets=from_offset, moment=from_time, tail=tail)
    _refuse_a_place_for_a_group(group, start, partition)
    record_filter = RecordFilter(
        keys=frozenset(each.encode() for each in key or ()),
        condition=None if where is None else Condition.parse(where),
    )
    # A topic that isn't there is found out before anything is joined.
    places = partitions_to_read(admin_client(bootstrap), topic, partition, start, bootstrap)
    client = consumer(bootstrap, _settings(group, from_beginning=from_beginning, uncommitted=uncommitted))
    try:
        if group is not None:
            client.subscribe([topic])
        else:
            # Without a group nothing is joined or committed: the partitions are simply read.
            client.assign(places)
        records = _records(client, bootstrap, idle_s, len(places) if until_end else None)
        chosen_format: Format = "json" if as_json else record_format
        _print(client, records, record_filter, chosen_format, count, commits=group is not None)
    finally:
        client.close()


def _refuse_a_place_for_a_group(group: str | None, start: Start, partition: list[int] | None) -> None:
    if group is not None and (start.is_a_place or partition):
        raise ConfigError(
            "a group begins where it has committed: leave out --group, or move the group with "
            "`headrace groups reset`"
        )


def _settings(
    group: str | None, *, from_beginning: bool, uncommitted: bool
) -> dict[str, str | int | float | bool]:
    """What the client is made with."""
    return {
        "group.id": group or "headrace-consume",
        # Only what was printed is committed: now and then, and when the command ends.
        "enable.auto.commit": group is not None,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "earliest" if from_beginning else "latest",
        "enable.partition.eof": True,
        "allow.auto.create.topics": False,
        "isolation.level": "read_uncommitted" if uncommitted else "read_committed",
    }


def _print(
    client: Consumer,
    records: Iterator[Message],
    record_filter: RecordFilter,
    record_format: Format,
    count: int | None,
    *,
    commits: bool,
) -> None:
    printed_count = 0
    for message in records:
        if record_filter.passes(_bytes(message.key()), _bytes(message.value())):
            sys.stdout.write(_line(message, record_format) + "\n")
            sys.stdout.flush()
            printed_count += 1
        if commits:
            client.store_offsets(message=message)
        if printed_count == count:
            return


def _records(
    client: Consumer, bootstrap: str, idle_s: float | None, partition_count_to_end: int | None
) -> Iterator[Message]:
    """Records as they come, until nothing came for a while or every partition's end was reached."""
    ended: set[int] = set()
    last_record_s = time.monotonic()
    is_told = False
    while True:
        message = client.poll(POLL_S)
        if message is None:
            if idle_s is not None and time.monotonic() - last_record_s > idle_s:
                return
            continue
        error = message.error()
        if error is None:
            last_record_s = time.monotonic()
            is_told = False
            ended.discard(message.partition() or 0)
            yield message
        elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - the library's own name
            ended.add(message.partition() or 0)
            if len(ended) == partition_count_to_end:
                return
        elif not isinstance(explain(error, bootstrap), BrokerUnavailable):
            raise explain(error, bootstrap)
        elif not is_told:
            say(f"waiting for the broker at {bootstrap}: {error.str()}")
            is_told = True


def _line(message: Message, record_format: Format) -> str:
    key, value = _bytes(message.key()), _bytes(message.value())
    if record_format == "value":
        return _text(value)
    if record_format == "key-value":
        return f"{_text(key)}\t{_text(value)}"
    place: dict[str, object] = {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp_ms": message.timestamp()[1],
    }
    return record_line(place, key, value, _headers(message))


def _headers(message: Message) -> list[tuple[str, bytes | None]]:
    # The library's types allow a dictionary here, which is only what producers may pass in.
    return cast("list[tuple[str, bytes | None]]", message.headers() or [])


def _bytes(data: bytes | str | None) -> bytes | None:
    return data.encode() if isinstance(data, str) else data


def _text(data: bytes | None) -> str:
    return "" if data is None else data.decode(errors="replace")
