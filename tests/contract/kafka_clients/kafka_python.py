"""kafka-python: Kafka's protocol in plain Python."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import kafka
from kafka import TopicPartition
from kafka.admin import AbortTransactionSpec, ConfigResource, OffsetSpec
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata

from headrace.testing.waiting import WITHIN_S
from kafka_clients.interface import (
    POLL_S,
    Admin,
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
    error_name,
)

ASSIGNORS: Final = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}


class KafkaPythonProducer(Producer):
    def __init__(self, settings: dict[str, Any]) -> None:
        with _errors():
            self._producer = kafka.KafkaProducer(**settings)
        self._sent: list[Any] = []

    def send(self, records: Iterable[NewRecord]) -> None:
        with _errors():
            for record in records:
                self._sent.append(
                    self._producer.send(
                        record.topic,
                        value=record.value,
                        key=record.key,
                        headers=record.headers,
                        partition=record.partition,
                        timestamp_ms=record.timestamp_ms,
                    )
                )

    def flush(self) -> list[tuple[int, int]]:
        sent, self._sent = self._sent, []
        with _errors():
            self._producer.flush(WITHIN_S)
            outcomes = [future.get(WITHIN_S) for future in sent]
        return [(outcome.partition, outcome.offset) for outcome in outcomes]

    def init_transactions(self) -> None:
        with _errors():
            self._producer.init_transactions()

    def begin_transaction(self) -> None:
        with _errors():
            self._producer.begin_transaction()

    def send_offsets(self, offsets: Mapping[Partition, int], consumer: Any) -> None:
        with _errors():
            self._producer.send_offsets_to_transaction(_rows(offsets), consumer.group_metadata())

    def commit_transaction(self) -> None:
        with _errors():
            self._producer.commit_transaction()

    def abort_transaction(self) -> None:
        with _errors():
            self._producer.abort_transaction()

    def close(self) -> None:
        self._producer.close(timeout=0)


class KafkaPythonConsumer(Consumer):
    def __init__(self, settings: dict[str, Any]) -> None:
        with _errors():
            self._consumer = kafka.KafkaConsumer(**settings)
        self._is_open = True
        self._read_ahead: list[Record] = []

    def subscribe(self, topics: Sequence[str]) -> None:
        """Ask for the partitions first: a leader that learns of them while it joins assigns none of them."""
        for topic in topics:
            self._consumer.partitions_for_topic(topic)
        self._consumer.subscribe(list(topics))

    def assign(self, partitions: Sequence[Partition]) -> None:
        self._consumer.assign([TopicPartition(*partition) for partition in partitions])

    def assignment(self) -> set[Partition]:
        return {(each.topic, each.partition) for each in self._consumer.assignment()}

    def poll(self, timeout_s: float = POLL_S) -> list[Record]:
        ahead, self._read_ahead = self._read_ahead, []
        return ahead or self._poll(timeout_s)

    def _poll(self, timeout_s: float) -> list[Record]:
        with _errors():
            found = self._consumer.poll(timeout_ms=round(timeout_s * 1000))
        return [_record(each) for records in found.values() for each in records]

    def seek(self, partition: Partition, offset: int) -> None:
        self._consumer.seek(TopicPartition(*partition), offset)

    def seek_to_end(self, partition: Partition) -> None:
        with _errors():
            self._consumer.seek_to_end(TopicPartition(*partition))
            self._consumer.position(TopicPartition(*partition))

    def position(self, partition: Partition) -> int | None:
        with _errors():
            return _integer(self._consumer.position(TopicPartition(*partition)))

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """Where this client has begun to join anew, do as its error says: poll, then commit again."""
        deadline = time.monotonic() + WITHIN_S
        while self._is_joining_anew() and time.monotonic() < deadline:
            self._read_ahead += self._poll(POLL_S)
        with _errors():
            self._consumer.commit(_rows(offsets))

    def _is_joining_anew(self) -> bool:
        """Its poll may return in the middle of a join; a commit then fails without asking the broker."""
        return bool(self._consumer._coordinator.rebalance_in_progress())

    def committed(self, partition: Partition) -> int | None:
        with _errors():
            return _integer(self._consumer.committed(TopicPartition(*partition)))

    def offset_for_time(self, partition: Partition, timestamp_ms: int) -> int | None:
        key = TopicPartition(*partition)
        with _errors():
            found = self._consumer.offsets_for_times({key: timestamp_ms})[key]
        return None if found is None else found.offset

    def beginning(self, partition: Partition) -> int:
        with _errors():
            return int(
                self._consumer.beginning_offsets([TopicPartition(*partition)])[TopicPartition(*partition)]
            )

    def end(self, partition: Partition) -> int:
        with _errors():
            return int(self._consumer.end_offsets([TopicPartition(*partition)])[TopicPartition(*partition)])

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._consumer.close(autocommit=False)

    def group_metadata(self) -> Any:
        return self._consumer.group_metadata()


class KafkaPythonAdmin(Admin):
    def __init__(self, settings: dict[str, Any]) -> None:
        with _errors():
            self._admin = kafka.KafkaAdminClient(**settings)

    def create_topic(self, name: str, partition_count: int, config: Mapping[str, str]) -> None:
        with _errors():
            self._admin.create_topics({name: {"num_partitions": partition_count, "configs": dict(config)}})

    def delete_topic(self, name: str) -> None:
        with _errors():
            self._admin.delete_topics([name])

    def topic_names(self) -> set[str]:
        with _errors():
            return set(self._admin.list_topics())

    def partition_count(self, topic: str) -> int:
        with _errors():
            (found,) = self._admin.describe_topics([topic])
        _check(found["error_code"])
        return len(found["partitions"])

    def create_partitions(self, topic: str, partition_count: int) -> None:
        with _errors():
            self._admin.create_partitions({topic: partition_count})

    def config(self, kind: str, name: str) -> dict[str, tuple[str | None, str]]:
        with _errors():
            found = self._admin.describe_configs([ConfigResource(kind, name)], config_filter="all")
        entries = found[kind.lower()][name]
        return {setting: (entry["value"], entry["config_source"]) for setting, entry in entries.items()}

    def groups_with_settings(self) -> set[str]:
        with _errors():
            found = self._admin.list_config_resources(["GROUP"])
        return set(found.get("group", ()))

    def alter_config(self, kind: str, name: str, changes: Mapping[str, str | None]) -> None:
        operations = {
            setting: ("delete", None) if value is None else ("set", value)
            for setting, value in changes.items()
        }
        with _errors():
            self._admin.alter_configs([ConfigResource(kind, name, operations)], raise_on_unknown=False)

    def delete_records(self, partition: Partition, before_offset: int) -> int:
        key = TopicPartition(*partition)
        with _errors():
            found = self._admin.delete_records({key: before_offset})[key]
        return int(found["low_watermark"])

    def list_offsets(self, partition: Partition, spec: str) -> tuple[int, int]:
        key = TopicPartition(*partition)
        by_name = {
            "earliest": OffsetSpec.EARLIEST,
            "latest": OffsetSpec.LATEST,
            "max_timestamp": OffsetSpec.MAX_TIMESTAMP,
        }
        with _errors():
            found = self._admin.list_partition_offsets(
                {key: by_name[spec] if spec in by_name else int(spec)}
            )[key]
        return found.offset, found.timestamp

    def cluster(self) -> dict[str, Any]:
        with _errors():
            found = self._admin.describe_cluster()
        return {
            "id": found["cluster_id"],
            "nodes": [f"{node['host']}:{node['port']}" for node in found["brokers"]],
            "has_controller": found["controller_id"] >= 0,
        }

    def quorum(self) -> dict[str, Any]:
        with _errors():
            (topic,) = self._admin.describe_metadata_quorum()["topics"]
        (partition,) = topic["partitions"]
        return {
            "leader": partition["leader_id"],
            "voters": [voter["replica_id"] for voter in partition["current_voters"]],
        }

    def log_dirs(self, broker_id: int) -> dict[str, int]:
        with _errors():
            (found,) = self._admin.describe_log_dirs(brokers=[broker_id])
        return {
            f"{topic['name']}-{partition['partition_index']}": partition["partition_size"]
            for directory in found["log_dirs"]
            for topic in directory["topics"]
            for partition in topic["partitions"]
        }

    def list_groups(self) -> dict[str, str]:
        with _errors():
            return {group["group_id"]: group["group_state"] for group in self._admin.list_groups()}

    def describe_group(self, group: str) -> Group:
        with _errors():
            found = self._admin.describe_groups([group])[group]
        return Group(
            state=found["group_state"],
            members=[
                Member(
                    client_id=member["client_id"],
                    instance_id=member["group_instance_id"],
                    partitions=_assigned(member["member_assignment"]),
                )
                for member in found["members"]
            ],
        )

    def delete_group(self, group: str) -> None:
        with _errors():
            outcome = self._admin.delete_groups([group])[group]
        if outcome != "OK":
            _check(getattr(kafka.errors, outcome).errno)

    def group_offsets(self, group: str) -> dict[Partition, int]:
        with _errors():
            found = self._admin.list_group_offsets(group)[group]
        return {(each.topic, each.partition): value.offset for each, value in found.items()}

    def alter_group_offsets(self, group: str, offsets: Mapping[Partition, int]) -> None:
        with _errors():
            _check_all(self._admin.alter_group_offsets(group, _rows(offsets)))

    def delete_group_offsets(self, group: str, partitions: Sequence[Partition]) -> None:
        with _errors():
            _check_all(
                self._admin.delete_group_offsets(group, [TopicPartition(*each) for each in partitions])
            )

    def list_transactions(self) -> dict[str, str]:
        with _errors():
            found = self._admin.list_transactions()
        return {each.transactional_id: each.state.value for listed in found.values() for each in listed}

    def describe_transaction(self, transactional_id: str) -> dict[str, Any]:
        with _errors():
            found = self._admin.describe_transactions([transactional_id])[transactional_id]
        return {
            "state": found.state.value,
            "producer_id": found.producer_id,
            "timeout_ms": found.transaction_timeout_ms,
            "partitions": {(each.topic, each.partition) for each in found.topic_partitions},
        }

    def describe_producers(self, partition: Partition) -> list[dict[str, int]]:
        key = TopicPartition(*partition)
        with _errors():
            found = self._admin.describe_producers([key])[key]
        return [
            {
                "producer_id": each.producer_id,
                "epoch": each.producer_epoch,
                "sequence": each.last_sequence,
                "transaction_start": each.current_transaction_start_offset,
            }
            for each in found.active_producers
        ]

    def abort_transaction(self, partition: Partition, producer_id: int, epoch: int) -> None:
        spec = AbortTransactionSpec(
            topic_partition=TopicPartition(*partition), producer_id=producer_id, producer_epoch=epoch
        )
        with _errors():
            self._admin.abort_transaction(spec)

    def close(self) -> None:
        self._admin.close()


class KafkaPythonClient(Client):
    """kafka-python."""

    def open_producer(self, settings: Settings) -> Producer:
        translated = _underscored(settings)
        if translated.get("acks") in {"0", "1", "-1"}:
            translated["acks"] = int(translated["acks"])
        if translated.get("compression_type") == "none":
            translated["compression_type"] = None
        return KafkaPythonProducer({"bootstrap_servers": self.bootstrap, **translated})

    def open_consumer(self, settings: Settings) -> Consumer:
        translated = _underscored(settings)
        if assignor := translated.get("partition_assignment_strategy"):
            translated["partition_assignment_strategy"] = [ASSIGNORS[assignor]]
        return KafkaPythonConsumer({"bootstrap_servers": self.bootstrap, **translated})

    def open_admin(self) -> Admin:
        return KafkaPythonAdmin({"bootstrap_servers": self.bootstrap})


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except KafkaError as error:
        raise _translated(error) from error


def _translated(error: KafkaError) -> ClientError:
    number = getattr(error, "errno", None)
    return ClientError(error_name(number) if number is not None else type(error).__name__, str(error))


def _check(error_code: int) -> None:
    if error_code:
        raise ClientError(error_name(error_code), "")


def _check_all(outcomes: Any) -> None:
    """Raise the first error of {what was asked for: error}."""
    for error in dict(outcomes).values():
        _check(error.errno)


def _record(record: Any) -> Record:
    return Record(
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        timestamp_ms=record.timestamp,
        key=record.key,
        value=record.value,
        headers=[(name, value) for name, value in record.headers],
    )


def _assigned(assignment: Any) -> set[Partition]:
    assigned = assignment["assigned_partitions"] if assignment else []
    return {(topic["topic"], partition) for topic in assigned for partition in topic["partitions"]}


def _rows(offsets: Mapping[Partition, int]) -> dict[TopicPartition, OffsetAndMetadata]:
    return {
        TopicPartition(*partition): OffsetAndMetadata(offset, "", -1) for partition, offset in offsets.items()
    }


def _integer(value: Any) -> int | None:
    return None if value is None else int(value)


def _underscored(settings: Settings) -> dict[str, Any]:
    return {name.replace(".", "_"): value for name, value in settings.items()}
