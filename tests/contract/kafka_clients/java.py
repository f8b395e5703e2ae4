"""Kafka's own Java clients, in a JVM that executes lines by `java/ClientShell.java`.

`java/ShareClients.java` is compiled with it only where the clients are new enough.
"""

from __future__ import annotations

import base64
import itertools
import json
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from apache_kafka import java_command, run_java
from headrace.errors import ChildFailed
from kafka_clients.interface import (
    POLL_S,
    Admin,
    Answer,
    Client,
    ClientError,
    Consumer,
    Group,
    Member,
    NewRecord,
    Partition,
    Producer,
    Record,
    Settings,
    ShareConsumer,
)

SOURCES: Final = Path(__file__).parents[1] / "java"
SHELL: Final = "ClientShell"
SHARE_CLIENTS: Final = "ShareClients"
ASSIGNORS: Final = {
    "range": "org.apache.kafka.clients.consumer.RangeAssignor",
    "roundrobin": "org.apache.kafka.clients.consumer.RoundRobinAssignor",
    "cooperative-sticky": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
}


class JavaShell:
    """A JVM with the clients of one version. For one thread."""

    def __init__(self, jars: Sequence[Path], directory: Path, *extensions: str) -> None:
        """Compile the shell into a directory of its own, with what the clients are new enough for."""
        sources = [str(SOURCES / f"{name}.java") for name in (SHELL, *extensions)]
        class_path = ":".join(map(str, jars))
        run_java(jars, "com.sun.tools.javac.Main", "-cp", class_path, "-d", str(directory), *sources)
        self._log_path = directory / "shell.log"
        self._log = self._log_path.open("wb")
        # The quick compiler of the JVM: the shell lives for a minute.
        options = ["-XX:TieredStopAtLevel=1"]
        java, *rest = java_command([*jars, directory], "256m")
        self._process = subprocess.Popen(
            [java, *options, *rest, SHELL],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )
        self._names = (f"c{number}" for number in itertools.count())

    def open(self, kind: str, settings: Mapping[str, Any]) -> str:
        """Open a client and return the name by which it is spoken to."""
        name = next(self._names)
        self.ask(name, "open", kind=kind, settings={key: _setting(value) for key, value in settings.items()})
        return name

    def ask(self, name: str, operation: str, /, **arguments: Any) -> Any:
        """Let a client do something, and return what came of it."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps({"on": name, "do": operation, **arguments}).encode() + b"\n")
        stdin.flush()
        line = stdout.readline()
        if not line:
            self._log.flush()
            raise ChildFailed(f"the JVM of the Java clients ended: {self._log_path.read_text()[-2000:]}")
        answer = json.loads(line)
        if "error" in answer:
            raise ClientError(answer["error"], answer["message"])
        return answer["result"]

    def close(self) -> None:
        """End the JVM."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
        self._log.close()


class JavaProducer(Producer):
    def __init__(self, shell: JavaShell, settings: Mapping[str, Any]) -> None:
        self._shell = shell
        self._name = shell.open("producer", settings)

    def send(self, records: Iterable[NewRecord]) -> None:
        self._shell.ask(self._name, "send", records=[_encoded(record) for record in records])

    def flush(self) -> list[tuple[int, int]]:
        return [(partition, offset) for partition, offset in self._shell.ask(self._name, "flush")]

    def init_transactions(self) -> None:
        self._shell.ask(self._name, "init_transactions")

    def begin_transaction(self) -> None:
        self._shell.ask(self._name, "begin_transaction")

    def send_offsets(self, offsets: Mapping[Partition, int], consumer: Any) -> None:
        self._shell.ask(self._name, "send_offsets", offsets=_rows(offsets), consumer=consumer.name)

    def commit_transaction(self) -> None:
        self._shell.ask(self._name, "commit_transaction")

    def abort_transaction(self) -> None:
        self._shell.ask(self._name, "abort_transaction")

    def close(self) -> None:
        self._shell.ask(self._name, "close")


class JavaConsumer(Consumer):
    def __init__(self, shell: JavaShell, settings: Mapping[str, Any]) -> None:
        self._shell = shell
        self.name = shell.open("consumer", settings)
        self._is_open = True

    def subscribe(self, topics: Sequence[str]) -> None:
        self._shell.ask(self.name, "subscribe", topics=list(topics))

    def assign(self, partitions: Sequence[Partition]) -> None:
        self._shell.ask(self.name, "assign", partitions=list(partitions))

    def assignment(self) -> set[Partition]:
        return _partitions(self._shell.ask(self.name, "assignment"))

    def poll(self, timeout_s: float = POLL_S) -> list[Record]:
        records = self._shell.ask(self.name, "poll", timeout_ms=round(timeout_s * 1000))
        return [_decoded(record) for record in records]

    def seek(self, partition: Partition, offset: int) -> None:
        self._of(partition, "seek", offset=offset)

    def seek_to_end(self, partition: Partition) -> None:
        self._of(partition, "seek_to_end")

    def position(self, partition: Partition) -> int | None:
        return _integer(self._of(partition, "position"))

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        self._shell.ask(self.name, "commit", offsets=_rows(offsets))

    def committed(self, partition: Partition) -> int | None:
        return _integer(self._of(partition, "committed"))

    def offset_for_time(self, partition: Partition, timestamp_ms: int) -> int | None:
        return _integer(self._of(partition, "offset_for_time", timestamp_ms=timestamp_ms))

    def beginning(self, partition: Partition) -> int:
        return int(self._of(partition, "beginning"))

    def end(self, partition: Partition) -> int:
        return int(self._of(partition, "end"))

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._shell.ask(self.name, "close")

    def _of(self, partition: Partition, operation: str, **arguments: Any) -> Any:
        return self._shell.ask(self.name, operation, topic=partition[0], partition=partition[1], **arguments)


class JavaShareConsumer(ShareConsumer):
    def __init__(self, shell: JavaShell, settings: Mapping[str, Any]) -> None:
        self._shell = shell
        self._name = shell.open("share_consumer", settings)
        self._is_open = True

    def subscribe(self, topics: Sequence[str]) -> None:
        self._shell.ask(self._name, "subscribe", topics=list(topics))

    def poll(self, timeout_s: float = POLL_S) -> list[Record]:
        records = self._shell.ask(self._name, "poll", timeout_ms=round(timeout_s * 1000))
        return [_decoded(record) for record in records]

    def acknowledge(self, record: Record, answer: Answer) -> None:
        place = {"topic": record.topic, "partition": record.partition, "offset": record.offset}
        self._shell.ask(self._name, "acknowledge", **place, answer=answer)

    def commit(self) -> dict[Partition, str | None]:
        outcomes = self._shell.ask(self._name, "commit")
        return {(topic, partition): error for topic, partition, error in outcomes}

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._shell.ask(self._name, "close")


class JavaAdmin(Admin):
    def __init__(self, shell: JavaShell, settings: Mapping[str, Any]) -> None:
        self._shell = shell
        self._name = shell.open("admin", settings)

    def create_topic(self, name: str, partition_count: int, config: Mapping[str, str]) -> None:
        self._ask("create_topic", name=name, partition_count=partition_count, config=dict(config))

    def delete_topic(self, name: str) -> None:
        self._ask("delete_topic", name=name)

    def topic_names(self) -> set[str]:
        return set(self._ask("topic_names"))

    def partition_count(self, topic: str) -> int:
        return int(self._ask("partition_count", name=topic))

    def create_partitions(self, topic: str, partition_count: int) -> None:
        self._ask("create_partitions", name=topic, partition_count=partition_count)

    def config(self, kind: str, name: str) -> dict[str, tuple[str | None, str]]:
        found = self._ask("config", kind=kind, name=name)
        return {setting: (value, source) for setting, (value, source) in found.items()}

    def alter_config(self, kind: str, name: str, changes: Mapping[str, str | None]) -> None:
        self._ask("alter_config", kind=kind, name=name, changes=dict(changes))

    def delete_records(self, partition: Partition, before_offset: int) -> int:
        return int(self._of(partition, "delete_records", offset=before_offset))

    def list_offsets(self, partition: Partition, spec: str) -> tuple[int, int]:
        offset, timestamp_ms = self._of(partition, "list_offsets", spec=spec)
        return offset, timestamp_ms

    def cluster(self) -> dict[str, Any]:
        return dict(self._ask("cluster"))

    def quorum(self) -> dict[str, Any]:
        return dict(self._ask("quorum"))

    def log_dirs(self, broker_id: int) -> dict[str, int]:
        return dict(self._ask("log_dirs", broker_id=broker_id))

    def list_groups(self) -> dict[str, str]:
        return dict(self._ask("list_groups"))

    def describe_group(self, group: str) -> Group:
        found = self._ask("describe_group", name=group)
        return Group(
            state=found["state"],
            members=[
                Member(
                    client_id=member["client_id"],
                    instance_id=member["instance_id"] or None,
                    partitions=_partitions(member["partitions"]),
                )
                for member in found["members"]
            ],
        )

    def delete_group(self, group: str) -> None:
        self._ask("delete_group", name=group)

    def group_offsets(self, group: str) -> dict[Partition, int]:
        rows = self._ask("group_offsets", name=group)
        return {(topic, partition): offset for topic, partition, offset in rows}

    def alter_group_offsets(self, group: str, offsets: Mapping[Partition, int]) -> None:
        self._ask("alter_group_offsets", name=group, offsets=_rows(offsets))

    def delete_group_offsets(self, group: str, partitions: Sequence[Partition]) -> None:
        self._ask("delete_group_offsets", name=group, partitions=list(partitions))

    def group_kinds(self) -> dict[str, str]:
        return dict(self._ask("group_kinds"))

    def describe_share_group(self, group: str) -> Group:
        found = self._ask("describe_share_group", name=group)
        return Group(
            state=found["state"],
            members=[
                Member(
                    client_id=member["client_id"],
                    instance_id=None,
                    partitions=_partitions(member["partitions"]),
                )
                for member in found["members"]
            ],
        )

    def delete_share_group(self, group: str) -> None:
        self._ask("delete_share_group", name=group)

    def share_group_offsets(self, group: str) -> dict[Partition, tuple[int, int | None]]:
        rows = self._ask("share_group_offsets", name=group)
        return {(topic, partition): (offset, lag) for topic, partition, offset, lag in rows}

    def alter_share_group_offsets(self, group: str, offsets: Mapping[Partition, int]) -> None:
        self._ask("alter_share_group_offsets", name=group, offsets=_rows(offsets))

    def delete_share_group_offsets(self, group: str, topics: Sequence[str]) -> None:
        self._ask("delete_share_group_offsets", name=group, topics=list(topics))

    def list_transactions(self) -> dict[str, str]:
        return dict(self._ask("list_transactions"))

    def describe_transaction(self, transactional_id: str) -> dict[str, Any]:
        found = self._ask("describe_transaction", name=transactional_id)
        return {**found, "partitions": _partitions(found["partitions"])}

    def describe_producers(self, partition: Partition) -> list[dict[str, int]]:
        return list(self._of(partition, "describe_producers"))

    def fence_producer(self, transactional_id: str) -> None:
        self._ask("fence_producer", name=transactional_id)

    def abort_transaction(self, partition: Partition, producer_id: int, epoch: int) -> None:
        self._of(partition, "abort_transaction", producer_id=producer_id, epoch=epoch)

    def close(self) -> None:
        self._ask("close")

    def _ask(self, operation: str, **arguments: Any) -> Any:
        return self._shell.ask(self._name, operation, **arguments)

    def _of(self, partition: Partition, operation: str, **arguments: Any) -> Any:
        return self._ask(operation, topic=partition[0], partition=partition[1], **arguments)


class JavaClient(Client):
    """Kafka's Java clients of the shell's version."""

    def __init__(self, bootstrap: str, shell: JavaShell) -> None:
        super().__init__(bootstrap)
        self._shell = shell

    def open_producer(self, settings: Settings) -> Producer:
        return JavaProducer(self._shell, {"bootstrap.servers": self.bootstrap, **settings})

    def open_consumer(self, settings: Settings) -> Consumer:
        translated = dict(settings)
        if assignor := translated.pop("partition.assignment.strategy", None):
            translated["partition.assignment.strategy"] = ASSIGNORS[str(assignor)]
        return JavaConsumer(self._shell, {"bootstrap.servers": self.bootstrap, **translated})

    def open_share_consumer(self, settings: Settings) -> ShareConsumer:
        return JavaShareConsumer(self._shell, {"bootstrap.servers": self.bootstrap, **settings})

    def open_admin(self) -> Admin:
        return JavaAdmin(self._shell, {"bootstrap.servers": self.bootstrap})


def _encoded(record: NewRecord) -> dict[str, Any]:
    return {
        "topic": record.topic,
        "partition": record.partition,
        "timestamp_ms": record.timestamp_ms,
        "key": _text(record.key),
        "value": _text(record.value),
        "headers": [(name, _text(value)) for name, value in record.headers],
    }


def _decoded(record: dict[str, Any]) -> Record:
    return Record(
        topic=record["topic"],
        partition=record["partition"],
        offset=record["offset"],
        timestamp_ms=record["timestamp_ms"],
        key=_bytes(record["key"]),
        value=_bytes(record["value"]),
        headers=[(name, _bytes(value)) for name, value in record["headers"]],
        delivery_count=record.get("delivery_count"),
    )


def _setting(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _rows(offsets: Mapping[Partition, int]) -> list[tuple[str, int, int]]:
    return [(topic, partition, offset) for (topic, partition), offset in offsets.items()]


def _partitions(rows: Iterable[Any]) -> set[Partition]:
    return {(topic, partition) for topic, partition in rows}


def _integer(value: Any) -> int | None:
    return None if value is None else int(value)


def _text(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
