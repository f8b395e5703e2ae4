"""aiokafka: Kafka's protocol for asyncio. A loop in a thread of its own makes it look like the others."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any, Final

import aiokafka
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import KafkaError

from headrace.testing.waiting import WITHIN_S
from kafka_clients.interface import (
    POLL_S,
    Admin,
    Client,
    ClientError,
    Consumer,
    NewRecord,
    Partition,
    Producer,
    Record,
    Settings,
    error_name,
)

ASSIGNORS: Final = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}


class Loop:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="aiokafka", daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Let the loop run it to its end, and return what came of it."""
        try:
            return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(WITHIN_S)
        except KafkaError as error:
            raise _translated(error) from error

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class AiokafkaProducer(Producer):
    def __init__(self, loop: Loop, settings: dict[str, Any]) -> None:
        self._loop = loop
        self._sent: list[Any] = []
        self._is_transactional = "transactional_id" in settings
        self._is_started = False

        async def make() -> aiokafka.AIOKafkaProducer:
            return aiokafka.AIOKafkaProducer(**settings)

        self._producer = loop.run(make())
        if not self._is_transactional:
            self._start()

    def send(self, records: Iterable[NewRecord]) -> None:
        async def send_all() -> None:
            for record in records:
                future = await self._producer.send(
                    record.topic,
                    value=record.value,
                    key=record.key,
                    partition=record.partition,
                    timestamp_ms=record.timestamp_ms,
                    headers=record.headers,
                )
                self._sent.append(future)

        self._loop.run(send_all())

    def flush(self) -> list[tuple[int, int]]:
        sent, self._sent = self._sent, []

        async def outcomes() -> list[tuple[int, int]]:
            await self._producer.flush()
            # Nothing comes back for what nobody acknowledges.
            found = [await future for future in sent]
            return [(each.partition, each.offset) for each in found if each is not None]

        return list(self._loop.run(outcomes()))

    def init_transactions(self) -> None:
        """aiokafka does it when it starts."""
        self._start()

    def begin_transaction(self) -> None:
        self._loop.run(self._producer.begin_transaction())

    def send_offsets(self, offsets: Mapping[Partition, int], consumer: Any) -> None:
        rows = {TopicPartition(*partition): offset for partition, offset in offsets.items()}
        self._loop.run(self._producer.send_offsets_to_transaction(rows, consumer.group))

    def commit_transaction(self) -> None:
        self._loop.run(self._producer.commit_transaction())

    def abort_transaction(self) -> None:
        self._loop.run(self._producer.abort_transaction())

    def close(self) -> None:
        if self._is_started:
            self._is_started = False
            self._loop.run(self._producer.stop())

    def _start(self) -> None:
        self._loop.run(self._producer.start())
        self._is_started = True


class AiokafkaConsumer(Consumer):
    def __init__(self, loop: Loop, settings: dict[str, Any]) -> None:
        self._loop = loop
        self.group = settings.get("group_id")

        async def start() -> aiokafka.AIOKafkaConsumer:
            consumer = aiokafka.AIOKafkaConsumer(**settings)
            await consumer.start()
            return consumer

        self._consumer = loop.run(start())
        self._is_open = True

    def subscribe(self, topics: Sequence[str]) -> None:
        self._call(self._consumer.subscribe, topics)

    def assign(self, partitions: Sequence[Partition]) -> None:
        self._call(self._consumer.assign, [TopicPartition(*partition) for partition in partitions])

    def assignment(self) -> set[Partition]:
        return {(each.topic, each.partition) for each in self._consumer.assignment()}

    def poll(self, timeout_s: float = POLL_S) -> list[Record]:
        found = self._loop.run(self._consumer.getmany(timeout_ms=round(timeout_s * 1000)))
        return [_record(each) for records in found.values() for each in records]

    def seek(self, partition: Partition, offset: int) -> None:
        self._call(self._consumer.seek, TopicPartition(*partition), offset)

    def seek_to_end(self, partition: Partition) -> None:
        self._loop.run(self._consumer.seek_to_end(TopicPartition(*partition)))

    def position(self, partition: Partition) -> int | None:
        return int(self._loop.run(self._consumer.position(TopicPartition(*partition))))

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        rows = {TopicPartition(*partition): offset for partition, offset in offsets.items()}
        self._loop.run(self._consumer.commit(rows))

    def committed(self, partition: Partition) -> int | None:
        found = self._loop.run(self._consumer.committed(TopicPartition(*partition)))
        return None if found is None else int(found)

    def offset_for_time(self, partition: Partition, timestamp_ms: int) -> int | None:
        key = TopicPartition(*partition)
        found = self._loop.run(self._consumer.offsets_for_times({key: timestamp_ms}))[key]
        return None if found is None else int(found.offset)

    def beginning(self, partition: Partition) -> int:
        key = TopicPartition(*partition)
        return int(self._loop.run(self._consumer.beginning_offsets([key]))[key])

    def end(self, partition: Partition) -> int:
        key = TopicPartition(*partition)
        return int(self._loop.run(self._consumer.end_offsets([key]))[key])

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._loop.run(self._consumer.stop())

    def _call(self, function: Any, *arguments: Any) -> None:
        async def call() -> None:
            function(*arguments)

        self._loop.run(call())


class AiokafkaAdmin(Admin):
    def __init__(self, loop: Loop, settings: dict[str, Any]) -> None:
        self._loop = loop

        async def start() -> AIOKafkaAdminClient:
            admin = AIOKafkaAdminClient(**settings)
            await admin.start()
            return admin

        self._admin = loop.run(start())

    def create_topic(self, name: str, partition_count: int, config: Mapping[str, str]) -> None:
        topic = NewTopic(name, partition_count, 1, topic_configs=dict(config))
        found = self._loop.run(self._admin.create_topics([topic]))
        for _, error_code, *_ in found.topic_errors:
            _check(error_code)

    def delete_topic(self, name: str) -> None:
        found = self._loop.run(self._admin.delete_topics([name]))
        for _, error_code in found.topic_error_codes:
            _check(error_code)

    def topic_names(self) -> set[str]:
        return set(self._loop.run(self._admin.list_topics()))

    def partition_count(self, topic: str) -> int:
        (found,) = self._loop.run(self._admin.describe_topics([topic]))
        _check(found["error_code"])
        return len(found["partitions"])

    def create_partitions(self, topic: str, partition_count: int) -> None:
        found = self._loop.run(self._admin.create_partitions({topic: NewPartitions(partition_count)}))
        for _, error_code, _ in found.topic_errors:
            _check(error_code)

    def delete_records(self, partition: Partition, before_offset: int) -> int:
        key = TopicPartition(*partition)
        found = self._loop.run(self._admin.delete_records({key: RecordsToDelete(before_offset)}))
        return int(found[key])

    def list_groups(self) -> dict[str, str]:
        return {group: "" for group, _ in self._loop.run(self._admin.list_consumer_groups())}

    def group_offsets(self, group: str) -> dict[Partition, int]:
        found = self._loop.run(self._admin.list_consumer_group_offsets(group))
        return {(each.topic, each.partition): value.offset for each, value in found.items()}

    def close(self) -> None:
        self._loop.run(self._admin.close())


class AiokafkaClient(Client):
    """aiokafka."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self._loop = Loop()

    def open_producer(self, settings: Settings) -> Producer:
        translated = {
            "max_batch_size" if name == "batch_size" else name: value
            for name, value in _underscored(settings).items()
        }
        if translated.get("acks") in {"0", "1"}:
            translated["acks"] = int(translated["acks"])
        if translated.get("compression_type") == "none":
            translated["compression_type"] = None
        return AiokafkaProducer(self._loop, {"bootstrap_servers": self.bootstrap, **translated})

    def open_consumer(self, settings: Settings) -> Consumer:
        translated = _underscored(settings)
        if assignor := translated.get("partition_assignment_strategy"):
            translated["partition_assignment_strategy"] = [ASSIGNORS[assignor]]
        return AiokafkaConsumer(self._loop, {"bootstrap_servers": self.bootstrap, **translated})

    def open_admin(self) -> Admin:
        return AiokafkaAdmin(self._loop, {"bootstrap_servers": self.bootstrap})

    def close(self) -> None:
        super().close()
        self._loop.stop()


def _translated(error: KafkaError) -> ClientError:
    number = getattr(error, "errno", None)
    return ClientError(error_name(number) if number is not None else type(error).__name__, str(error))


def _check(error_code: int) -> None:
    if error_code:
        raise ClientError(error_name(error_code), "")


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


def _underscored(settings: Settings) -> dict[str, Any]:
    return {name.replace(".", "_"): value for name, value in settings.items()}
