"""`headrace consume`: print the records of a topic, from the beginning or as they come."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from typing import Annotated, Final, Literal, cast

import typer
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaError, Message, TopicPartition

from headrace.cli.client import REQUEST_TIMEOUT_S, consumer, explain, kafka_errors
from headrace.cli.options import Bootstrap
from headrace.errors import BrokerUnavailable, ConfigError

POLL_S: Final = 0.2

Format = Literal["value", "key-value", "json"]


def consume(
    topic: Annotated[str, typer.Argument(help="The topic to read.")],
    bootstrap: Bootstrap,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Start at the oldest record, not with new ones.")
    ] = False,
    group: Annotated[
        str | None, typer.Option(help="Read as a member of this group and commit what was printed.")
    ] = None,
    count: Annotated[int | None, typer.Option("--count", "-n", min=1, help="Stop after so many.")] = None,
    until_end: Annotated[
        bool, typer.Option("--until-end", help="Stop at the newest record instead of waiting for more.")
    ] = False,
    idle_s: Annotated[
        float | None, typer.Option("--idle", min=0.1, help="Stop when nothing came for so many seconds.")
    ] = None,
    record_format: Annotated[Format, typer.Option("--format", help="What to print of a record.")] = "value",
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
) -> None:
    """Print the records of a topic, one a line."""
    client = consumer(
        bootstrap,
        {
            "group.id": group or "headrace-consume",
            # Only what was printed is committed: now and then, and when the command ends.
            "enable.auto.commit": group is not None,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "earliest" if from_beginning else "latest",
            "enable.partition.eof": True,
            "allow.auto.create.topics": False,
        },
    )
    try:
        partition_count = _partition_count(client, topic, bootstrap)
        if group is not None:
            client.subscribe([topic])
        else:
            # Without a group nothing is joined or committed: the partitions are simply read.
            start = OFFSET_BEGINNING if from_beginning else OFFSET_END
            client.assign([TopicPartition(topic, number, start) for number in range(partition_count)])
        records = _records(client, bootstrap, idle_s, partition_count if until_end else None)
        for printed_count, message in enumerate(records, start=1):
            sys.stdout.write(_line(message, "json" if as_json else record_format) + "\n")
            sys.stdout.flush()
            if group is not None:
                client.store_offsets(message=message)
            if printed_count == count:
                break
    finally:
        client.close()


def _partition_count(client: Consumer, topic: str, bootstrap: str) -> int:
    with kafka_errors(bootstrap):
        metadata = client.list_topics(topic, timeout=REQUEST_TIMEOUT_S).topics[topic]
    if metadata.error is not None:
        raise ConfigError(f"there is no topic {topic}: `headrace topics list` shows what is there")
    return len(metadata.partitions)


def _records(
    client: Consumer, bootstrap: str, idle_s: float | None, partition_count_to_end: int | None
) -> Iterator[Message]:
    """Records as they come, until nothing came for a while or every partition's end was reached."""
    ended: set[int] = set()
    last_record_s = time.monotonic()
    while True:
        message = client.poll(POLL_S)
        if message is None:
            if idle_s is not None and time.monotonic() - last_record_s > idle_s:
                return
            continue
        error = message.error()
        if error is None:
            last_record_s = time.monotonic()
            ended.discard(message.partition() or 0)
            yield message
        elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - the library's own name
            ended.add(message.partition() or 0)
            if len(ended) == partition_count_to_end:
                return
        elif not isinstance(explain(error, bootstrap), BrokerUnavailable):
            raise explain(error, bootstrap)


def _line(message: Message, record_format: Format) -> str:
    value, key = _text(message.value()), _text(message.key())
    if record_format == "value":
        return value if value is not None else ""
    if record_format == "key-value":
        return f"{key if key is not None else ''}\t{value if value is not None else ''}"
    return json.dumps(
        {
            "topic": message.topic(),
            "partition": message.partition(),
            "offset": message.offset(),
            "timestamp_ms": message.timestamp()[1],
            "key": key,
            "value": value,
            "headers": [[name, _text(content)] for name, content in _headers(message)],
        },
        ensure_ascii=False,
    )


def _headers(message: Message) -> list[tuple[str, bytes | None]]:
    # The library's types allow a dictionary here, which is only what producers may pass in.
    return cast("list[tuple[str, bytes | None]]", message.headers() or [])


def _text(data: bytes | str | None) -> str | None:
    return data.decode(errors="replace") if isinstance(data, bytes) else data
