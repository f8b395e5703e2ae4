"""confluent-kafka, and so librdkafka: the client behind most languages other than Java."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, Final

import confluent_kafka
from confluent_kafka import AcknowledgeType, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

from headrace.testing.waiting import WITHIN_S
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

NAMES: Final = {"max.request.size": "message.max.bytes", "fetch.max.wait.ms": "fetch.wait.max.ms"}
"""Settings that librdkafka calls otherwise."""
UNKNOWN: Final = -1001
ANSWERS: Final[dict[Answer, AcknowledgeType]] = {
    "accept": AcknowledgeType.ACCEPT,
    "release": AcknowledgeType.RELEASE,
    "reject": AcknowledgeType.REJECT,
}


class ConfluentProducer(Producer):
    def __init__(self, settings: dict[str, Any]) -> None:
        self._producer = confluent_kafka.Producer(settings)
        self._sent: list[Message | KafkaError | None] = []

    def send(self, records: Iterable[NewRecord]) -> None:
        with _errors():
            for record in records:
                self._send(record)

    def flush(self) -> list[tuple[int, int]]:
        try:
            with _errors():
                assert self._producer.flush(WITHIN_S) == 0, "not everything was sent in time"
        except SystemError:
            # The library may lose a fatal error on its way here. It tells it again to whoever asks for more.
            self.begin_transaction()
            raise
        sent, self._sent = self._sent, []
        for outcome in sent:
            if isinstance(outcome, KafkaError):
                raise ClientError(outcome.name(), outcome.str())
        # Nothing comes back for what nobody acknowledges.
        known = [(each.partition(), each.offset()) for each in sent if isinstance(each, Message)]
        return [(partition or 0, offset) for partition, offset in known if offset is not None]

    def init_transactions(self) -> None:
        with _errors():
            self._producer.init_transactions(WITHIN_S)

    def begin_transaction(self) -> None:
        with _errors():
            self._producer.begin_transaction()

    def send_offsets(self, offsets: Mapping[Partition, int], consumer: Any) -> None:
        with _errors():
            self._producer.send_offsets_to_transaction(_rows(offsets), consumer.group_metadata(), WITHIN_S)

    def commit_transaction(self) -> None:
        with _errors():
            self._producer.commit_transaction(WITHIN_S)

    def abort_transaction(self) -> None:
        with _errors():
            self._producer.abort_transaction(WITHIN_S)

    def close(self) -> None:
        """A producer ends when nobody holds it; what it didn't send is dropped."""
        with suppress(KafkaException):  # One that was fenced refuses even this.
            self._producer.purge()
            self._producer.flush(0)

    def _send(self, record: NewRecord) -> None:
        place = len(self._sent)
        self._sent.append(None)

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            if place < len(self._sent):
                self._sent[place] = error or message

        options: dict[str, Any] = {"partition": -1 if record.partition is None else record.partition}
        if record.timestamp_ms is not None:
            options["timestamp"] = record.timestamp_ms
        self._producer.produce(
            record.topic,
            record.value,
            record.key,
            headers=[*record.headers],
            on_delivery=on_delivery,
            **options,
        )


class ConfluentConsumer(Consumer):
    def __init__(self, settings: dict[str, Any]) -> None:
        self._consumer = confluent_kafka.Consumer(settings)
        self._is_open = True

    def subscribe(self, topics: Sequence[str]) -> None:
        self._consumer.subscribe(list(topics))

    def assign(self, partitions: Sequence[Partition]) -> None:
        self._consumer.assign([TopicPartition(*partition) for partition in partitions])

    def assignment(self) -> set[Partition]:
        return {(each.topic, each.partition) for each in self._consumer.assignment()}

    def poll(self, timeout_s: float = POLL_S) -> list[Record]:
        with _errors():
            message = self._consumer.poll(timeout_s)
            messages = [message, *self._consumer.consume(500, 0)] if message is not None else []
        for each in messages:
            _check(each.error())
        return [_record(each) for each in messages]

    def seek(self, partition: Partition, offset: int) -> None:
        with _errors():
            self._consumer.seek(TopicPartition(*partition, offset))

    def seek_to_end(self, partition: Partition) -> None:
        """To the end as it is now: librdkafka would otherwise look for it when it next fetches."""
        self.seek(partition, self.end(partition))

    def position(self, partition: Partition) -> int | None:
        (found,) = self._consumer.position([TopicPartition(*partition)])
        return None if found.offset == UNKNOWN else found.offset

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        with _errors():
            committed = self._consumer.commit(offsets=_rows(offsets), asynchronous=False)
        for each in committed or []:
            _check(each.error)

    def committed(self, partition: Partition) -> int | None:
        with _errors():
            (found,) = self._consumer.committed([TopicPartition(*partition)], WITHIN_S)
        _check(found.error)
        return None if found.offset == UNKNOWN else found.offset

    def offset_for_time(self, partition: Partition, timestamp_ms: int) -> int | None:
        with _errors():
            (found,) = self._consumer.offsets_for_times([TopicPartition(*partition, timestamp_ms)], WITHIN_S)
        _check(found.error)
        return found.offset if found.offset >= 0 else None

    def beginning(self, partition: Partition) -> int:
        return self._watermarks(partition)[0]

    def end(self, partition: Partition) -> int:
        return self._watermarks(partition)[1]

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._consumer.close()

    def group_metadata(self) -> Any:
        return self._consumer.consumer_group_metadata()

    def _watermarks(self, partition: Partition) -> tuple[int, int]:
        with _errors():
            found = self._consumer.get_watermark_offsets(TopicPartition(*partition), WITHIN_S)
        assert found is not None, f"no offsets of {partition} came in time"
        return found


class ConfluentShareConsumer(ShareConsumer):
    def __init__(self, settings: dict[str, Any]) -> None:
        self._consumer = confluent_kafka.ShareConsumer(settings)
        self._is_open = True

    def subscribe(self, topics: Sequence[str]) -> None:
        self._consumer.subscribe(list(topics))

    def poll(self, timeout_s: float = POLL_S) -> list[Record]:
        with _errors():
            messages = list(self._consumer.poll(timeout_s))
        for each in messages:
            _check(each.error())
        return [replace(_record(each), delivery_count=each.delivery_count()) for each in messages]

    def acknowledge(self, record: Record, answer: Answer) -> None:
        self._consumer.acknowledge_offset(record.topic, record.partition, record.offset, ANSWERS[answer])

    def commit(self) -> dict[Partition, str | None]:
        with _errors():
            outcomes = self._consumer.commit_sync(WITHIN_S)
        return {
            (each.topic, each.partition): None if error is None else _translated(error).code
            for each, error in outcomes.items()
        }

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._consumer.close()


class ConfluentAdmin(Admin):
    def __init__(self, settings: dict[str, Any]) -> None:
        self._admin = AdminClient(settings)

    def create_topic(self, name: str, partition_count: int, config: Mapping[str, str]) -> None:
        topic = NewTopic(name, partition_count, 1, config=dict(config))
        _only(self._admin.create_topics([topic]))

    def delete_topic(self, name: str) -> None:
        _only(self._admin.delete_topics([name]))

    def topic_names(self) -> set[str]:
        with _errors():
            return set(self._admin.list_topics(timeout=WITHIN_S).topics)

    def partition_count(self, topic: str) -> int:
        found = _only(self._admin.describe_topics(confluent_kafka.TopicCollection([topic])))
        return len(found.partitions)

    def create_partitions(self, topic: str, partition_count: int) -> None:
        _only(self._admin.create_partitions([NewPartitions(topic, partition_count)]))

    def config(self, kind: str, name: str) -> dict[str, tuple[str | None, str]]:
        found = _only(self._admin.describe_configs([ConfigResource(kind, name)]))
        return {
            entry.name: (entry.value, ConfigSource(entry.source).name.removesuffix("_CONFIG") + "_CONFIG")
            for entry in found.values()
        }

    def alter_config(self, kind: str, name: str, changes: Mapping[str, str | None]) -> None:
        entries = [
            ConfigEntry(
                setting,
                value,
                incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
            )
            for setting, value in changes.items()
        ]
        resource = ConfigResource(kind, name, incremental_configs=entries)
        _only(self._admin.incremental_alter_configs([resource]))

    def delete_records(self, partition: Partition, before_offset: int) -> int:
        found = _only(self._admin.delete_records([TopicPartition(*partition, before_offset)]))
        return int(found.low_watermark)

    def list_offsets(self, partition: Partition, spec: str) -> tuple[int, int]:
        found = _only(self._admin.list_offsets({TopicPartition(*partition): _spec(spec)}))
        return found.offset, found.timestamp

    def cluster(self) -> dict[str, Any]:
        with _errors():
            found = self._admin.describe_cluster().result(WITHIN_S)
        return {
            "id": found.cluster_id,
            "nodes": [f"{node.host}:{node.port}" for node in found.nodes],
            "has_controller": found.controller is not None,
        }

    def list_groups(self) -> dict[str, str]:
        with _errors():
            found = self._admin.list_consumer_groups().result(WITHIN_S)
        return {group.group_id: _state(group.state) for group in found.valid}

    def describe_group(self, group: str) -> Group:
        found = _only(self._admin.describe_consumer_groups([group]))
        return Group(
            state=_state(found.state),
            members=[
                Member(
                    client_id=member.client_id,
                    instance_id=member.group_instance_id,
                    partitions={(each.topic, each.partition) for each in member.assignment.topic_partitions},
                )
                for member in found.members
            ],
        )

    def delete_group(self, group: str) -> None:
        _only(self._admin.delete_consumer_groups([group]))

    def group_offsets(self, group: str) -> dict[Partition, int]:
        asked = [confluent_kafka.ConsumerGroupTopicPartitions(group)]
        found = _only(self._admin.list_consumer_group_offsets(asked))
        return {(each.topic, each.partition): each.offset for each in found.topic_partitions}

    def alter_group_offsets(self, group: str, offsets: Mapping[Partition, int]) -> None:
        asked = [confluent_kafka.ConsumerGroupTopicPartitions(group, _rows(offsets))]
        found = _only(self._admin.alter_consumer_group_offsets(asked))
        for each in found.topic_partitions:
            _check(each.error)

    def node_ids(self) -> list[int]:
        """The numbers of the brokers."""
        with _errors():
            return [node.id for node in self._admin.describe_cluster().result(WITHIN_S).nodes]

    def has_leaders(self, topic: str) -> bool:
        """Whether every partition is served; that may take a moment after the topic was created."""
        with _errors():
            found = self._admin.list_topics(topic, WITHIN_S).topics[topic]
        return found.error is None and all(each.leader >= 0 for each in found.partitions.values())

    def close(self) -> None:
        """An administrator ends when nobody holds it."""


class ConfluentClient(Client):
    """confluent-kafka."""

    def open_producer(self, settings: Settings) -> Producer:
        return ConfluentProducer(self._settings(settings))

    def open_consumer(self, settings: Settings) -> Consumer:
        return ConfluentConsumer({"group.id": "nobody", **self._settings(settings)})

    def open_share_consumer(self, settings: Settings) -> ShareConsumer:
        return ConfluentShareConsumer(self._settings(settings))

    def open_admin(self) -> ConfluentAdmin:
        return ConfluentAdmin(self._settings({}))

    def _settings(self, settings: Settings) -> dict[str, Any]:
        renamed = {NAMES.get(name, name): value for name, value in settings.items()}
        return {"bootstrap.servers": self.bootstrap, "log_level": 0, **renamed}


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except KafkaException as error:
        raise _translated(error) from error
    except SystemError as error:
        # A fatal error comes up while the library calls back, which Python finds odd.
        if not isinstance(error.__cause__, KafkaException):
            raise
        raise _translated(error.__cause__) from error


def _translated(error: KafkaException) -> ClientError:
    cause: KafkaError = error.args[0]
    return ClientError(cause.name(), cause.str())


def _check(error: KafkaError | None) -> None:
    if error is not None:
        raise ClientError(error.name(), error.str())


def _only(futures: Mapping[Any, Future[Any]]) -> Any:
    """The result of the one thing that was asked for."""
    (future,) = futures.values()
    with _errors():
        return future.result(WITHIN_S)


def _record(message: Message) -> Record:
    headers: Any = message.headers() or []
    return Record(
        topic=message.topic() or "",
        partition=_known(message.partition()),
        offset=_known(message.offset()),
        timestamp_ms=message.timestamp()[1],
        key=_bytes(message.key()),
        value=_bytes(message.value()),
        headers=[(name, _bytes(value)) for name, value in headers],
    )


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _known(number: int | None) -> int:
    assert number is not None
    return number


def _rows(offsets: Mapping[Partition, int]) -> list[TopicPartition]:
    return [TopicPartition(*partition, offset) for partition, offset in offsets.items()]


def _spec(spec: str) -> Any:
    specs: Any = OffsetSpec
    return specs.for_timestamp(int(spec)) if spec.isdecimal() else getattr(specs, spec)()


def _state(state: Any) -> str:
    """Kafka's own spelling: STABLE is Stable, PREPARING_REBALANCING is PreparingRebalance."""
    return "".join(word.capitalize() for word in state.name.split("_")).replace("Rebalancing", "Rebalance")
