"""What the contract asks of a Kafka client, whatever its library: each library is one subclass of `Client`.

Settings are named as Kafka's Java clients name them; a library that calls one otherwise translates it.
Errors arrive as `ClientError` with Kafka's own name of the error, such as TOPIC_ALREADY_EXISTS, or with the
library's name of one that never crosses the wire. An operation that a library doesn't have raises
NotImplementedError: a test names the clients that it is about.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeVar

from kio.schema.errors import ErrorCode

from headrace.testing.waiting import eventually

POLL_S: Final = 0.05

Partition = tuple[str, int]
Settings = Mapping[str, str | int | bool]
T = TypeVar("T")
Opened = TypeVar("Opened", bound="Producer | Consumer | ShareConsumer | Admin")
Answer = Literal["accept", "release", "reject"]
"""What a share consumer says about a record that it was given."""


class ClientError(Exception):
    """What the broker, or the client by itself, refused."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A record as a consumer was given it."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    delivery_count: int | None = None
    """How often a share group has given it out, this time included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A group as it is described."""

    state: str
    members: list[Member]


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A member of a group as it is described."""

    client_id: str
    instance_id: str | None
    partitions: set[Partition]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRecord:
    """A record to send. Without a partition, the client chooses one by the key."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: list[tuple[str, bytes | None]] = field(default_factory=list)


class Producer(ABC):
    """Sends records; with a transactional id, in transactions."""

    @abstractmethod
    def send(self, records: Iterable[NewRecord]) -> None:
        """Hand records over to be sent."""

    @abstractmethod
    def flush(self) -> list[tuple[int, int]]:
        """Wait for everything that was handed over, and return each partition and offset in that order."""

    @abstractmethod
    def init_transactions(self) -> None: ...

    @abstractmethod
    def begin_transaction(self) -> None: ...

    @abstractmethod
    def send_offsets(self, offsets: Mapping[Partition, int], consumer: Any) -> None:
        """Commit offsets of the consumer's group as part of the transaction."""

    @abstractmethod
    def commit_transaction(self) -> None: ...

    @abstractmethod
    def abort_transaction(self) -> None: ...

    @abstractmethod
    def close(self) -> None: ...

    def produce(self, topic: str, *values: bytes | None, partition: int | None = 0) -> list[int]:
        """Send values to one partition and return their offsets."""
        self.send(NewRecord(topic=topic, value=value, partition=partition) for value in values)
        return [offset for _, offset in self.flush()]


class Consumer(ABC):
    """Reads records, by itself or as a member of a group."""

    @abstractmethod
    def subscribe(self, topics: Sequence[str]) -> None: ...

    @abstractmethod
    def assign(self, partitions: Sequence[Partition]) -> None: ...

    @abstractmethod
    def assignment(self) -> set[Partition]: ...

    @abstractmethod
    def poll(self, timeout_s: float = POLL_S) -> list[Record]: ...

    @abstractmethod
    def seek(self, partition: Partition, offset: int) -> None: ...

    @abstractmethod
    def seek_to_end(self, partition: Partition) -> None: ...

    @abstractmethod
    def position(self, partition: Partition) -> int | None: ...

    @abstractmethod
    def commit(self, offsets: Mapping[Partition, int]) -> None: ...

    @abstractmethod
    def committed(self, partition: Partition) -> int | None: ...

    @abstractmethod
    def offset_for_time(self, partition: Partition, timestamp_ms: int) -> int | None: ...

    @abstractmethod
    def beginning(self, partition: Partition) -> int: ...

    @abstractmethod
    def end(self, partition: Partition) -> int: ...

    @abstractmethod
    def close(self) -> None: ...

    def read(self, count: int) -> list[Record]:
        """Read so many records; fail if they don't come."""
        records: list[Record] = []

        def has_enough() -> bool:
            records.extend(self.poll())
            return len(records) >= count

        eventually(has_enough, lambda: f"{count} records, of which {len(records)} came,")
        return records

    def values(self, count: int) -> list[bytes | None]:
        """Read so many records and return their values."""
        return [record.value for record in self.read(count)]


class ShareConsumer(ABC):
    """Reads records as a member of a share group, and answers for each of them."""

    @abstractmethod
    def subscribe(self, topics: Sequence[str]) -> None: ...

    @abstractmethod
    def poll(self, timeout_s: float = POLL_S) -> list[Record]: ...

    @abstractmethod
    def acknowledge(self, record: Record, answer: Answer) -> None: ...

    @abstractmethod
    def commit(self) -> dict[Partition, str | None]:
        """Send what was acknowledged, and return each partition's error, or None."""

    @abstractmethod
    def close(self) -> None: ...

    def take(self, count: int) -> list[Record]:
        """Poll until records come, which must be so many: what is polled has to be answered for."""
        records = eventually(self.poll, "a record")
        assert len(records) == count, f"{count} records were expected and {len(records)} came"
        return records

    def answer(self, records: Iterable[Record], answer: Answer) -> None:
        """Acknowledge records, and make sure that the broker has it."""
        for record in records:
            self.acknowledge(record, answer)
        errors = {partition: error for partition, error in self.commit().items() if error is not None}
        assert not errors, f"acknowledgements were refused: {errors}"

    def read(self, count: int, answer: Answer = "accept") -> list[Record]:
        """Read so many records and answer for each of them; fail if they don't come."""
        records: list[Record] = []

        def has_enough() -> bool:
            found = self.poll()
            records.extend(found)
            self.answer(found, answer)
            return len(records) >= count

        eventually(has_enough, lambda: f"{count} records, of which {len(records)} came,")
        return records


class Admin(ABC):
    """Administers a cluster. Libraries lack one operation or another."""

    def create_topic(self, name: str, partition_count: int, config: Mapping[str, str]) -> None:
        raise NotImplementedError

    def delete_topic(self, name: str) -> None:
        raise NotImplementedError

    def topic_names(self) -> set[str]:
        raise NotImplementedError

    def partition_count(self, topic: str) -> int:
        raise NotImplementedError

    def create_partitions(self, topic: str, partition_count: int) -> None:
        raise NotImplementedError

    def config(self, kind: str, name: str) -> dict[str, tuple[str | None, str]]:
        """Each setting's value and where it comes from, for the kind TOPIC, GROUP or BROKER."""
        raise NotImplementedError

    def groups_with_settings(self) -> set[str]:
        """The groups for which something was set."""
        raise NotImplementedError

    def alter_config(self, kind: str, name: str, changes: Mapping[str, str | None]) -> None:
        """Set settings; None means back to the default."""
        raise NotImplementedError

    def delete_records(self, partition: Partition, before_offset: int) -> int:
        """Delete what lies before the offset, and return the first offset that is left."""
        raise NotImplementedError

    def list_offsets(self, partition: Partition, spec: str) -> tuple[int, int]:
        """The offset and timestamp for earliest, latest, max_timestamp, or a time in milliseconds."""
        raise NotImplementedError

    def cluster(self) -> dict[str, Any]:
        """id, nodes, has_controller."""
        raise NotImplementedError

    def quorum(self) -> dict[str, Any]:
        """leader and voters."""
        raise NotImplementedError

    def log_dirs(self, broker_id: int) -> dict[str, int]:
        """The size of each partition, as `topic-partition`."""
        raise NotImplementedError

    def list_groups(self) -> dict[str, str]:
        """Each group's state."""
        raise NotImplementedError

    def describe_group(self, group: str) -> Group:
        raise NotImplementedError

    def delete_group(self, group: str) -> None:
        raise NotImplementedError

    def group_offsets(self, group: str) -> dict[Partition, int]:
        raise NotImplementedError

    def alter_group_offsets(self, group: str, offsets: Mapping[Partition, int]) -> None:
        raise NotImplementedError

    def delete_group_offsets(self, group: str, partitions: Sequence[Partition]) -> None:
        raise NotImplementedError

    def group_kinds(self) -> dict[str, str]:
        """What each group is: Classic, Consumer or Share."""
        raise NotImplementedError

    def describe_share_group(self, group: str) -> Group:
        raise NotImplementedError

    def delete_share_group(self, group: str) -> None:
        raise NotImplementedError

    def share_group_offsets(self, group: str) -> dict[Partition, tuple[int, int | None]]:
        """The start offset and the lag of each partition."""
        raise NotImplementedError

    def alter_share_group_offsets(self, group: str, offsets: Mapping[Partition, int]) -> None:
        raise NotImplementedError

    def delete_share_group_offsets(self, group: str, topics: Sequence[str]) -> None:
        raise NotImplementedError

    def list_transactions(self) -> dict[str, str]:
        """Each transactional id's state."""
        raise NotImplementedError

    def describe_transaction(self, transactional_id: str) -> dict[str, Any]:
        """state, producer_id, timeout_ms, partitions."""
        raise NotImplementedError

    def describe_producers(self, partition: Partition) -> list[dict[str, int]]:
        """producer_id, epoch, sequence, transaction_start of each."""
        raise NotImplementedError

    def fence_producer(self, transactional_id: str) -> None:
        raise NotImplementedError

    def abort_transaction(self, partition: Partition, producer_id: int, epoch: int) -> None:
        raise NotImplementedError

    @abstractmethod
    def close(self) -> None: ...


class Client(ABC):
    """One library, against one broker. Everything that it opened is closed with it."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._opened: list[Producer | Consumer | ShareConsumer | Admin] = []
        self._admin: Admin | None = None

    @abstractmethod
    def open_producer(self, settings: Settings) -> Producer: ...

    @abstractmethod
    def open_consumer(self, settings: Settings) -> Consumer: ...

    @abstractmethod
    def open_admin(self) -> Admin: ...

    def open_share_consumer(self, settings: Settings) -> ShareConsumer:
        raise NotImplementedError

    def producer(self, **settings: str | int | bool) -> Producer:
        """A producer that sends at once, and is told of what is there to stay.

        Keywords are settings, with underscores for dots.
        """
        return self._keep(self.open_producer({"linger.ms": 0, "acks": "all", **_dotted(settings)}))

    def consumer(self, **settings: str | int | bool) -> Consumer:
        """A consumer that starts at the beginning and commits only what it is told to.

        Its fetches are short, because Java's closes only when the last one has been answered.
        """
        defaults: Settings = {
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.max.wait.ms": 50,
            "isolation.level": "read_uncommitted",
        }
        return self._keep(self.open_consumer({**defaults, **_dotted(settings)}))

    def share_consumer(self, group: str, *topics: str, **settings: str | int | bool) -> ShareConsumer:
        """A member of a share group that answers for each record, unless it is told to accept all."""
        defaults: Settings = {"share.acknowledgement.mode": "explicit", "fetch.max.wait.ms": 50}
        consumer = self.open_share_consumer({"group.id": group, **defaults, **_dotted(settings)})
        self._keep(consumer).subscribe(topics)
        return consumer

    @property
    def admin(self) -> Admin:
        """The one administrator."""
        if self._admin is None:
            self._admin = self._keep(self.open_admin())
        return self._admin

    def produce(self, topic: str, *values: bytes | None, partition: int | None = 0) -> list[int]:
        """Produce values with default settings and return their offsets."""
        return self.producer().produce(topic, *values, partition=partition)

    def reader(self, *partitions: Partition, **settings: str | int | bool) -> Consumer:
        """A consumer of these partitions, in no group, from their beginning."""
        consumer = self.consumer(**settings)
        consumer.assign(partitions)
        return consumer

    def close(self) -> None:
        """Close everything that is still open, the newest first."""
        while self._opened:
            self._opened.pop().close()

    def _keep(self, opened: Opened) -> Opened:
        self._opened.append(opened)
        return opened


def error_name(number: int) -> str:
    """Kafka's name of an error that travels as this number."""
    return ErrorCode(number).name.upper()


def _dotted(settings: Settings) -> dict[str, str | int | bool]:
    return {name.replace("_", "."): value for name, value in settings.items()}
