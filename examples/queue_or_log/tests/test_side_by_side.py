"""How many work side by side: at a queue as many as like to, at the log as many as there are partitions."""

from __future__ import annotations

import pika
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic

import headrace
from headrace.testing.waiting import eventually

WORKER_COUNT = 5
PARTITION_COUNT = 2


def test_each_of_many_workers_of_a_queue_gets_a_message() -> None:
    with headrace.Broker(amqp=True) as broker:
        connection = pika.BlockingConnection(pika.URLParameters(broker.amqp_url))
        channels = [connection.channel() for _ in range(WORKER_COUNT)]
        channels[0].queue_declare("work", durable=True)
        got: dict[int, list[bytes]] = {number: [] for number in range(WORKER_COUNT)}
        for number, channel in enumerate(channels):
            channel.basic_qos(prefetch_count=1)
            taken = got[number]
            channel.basic_consume(
                "work", lambda _channel, _method, _properties, body, into=taken: into.append(body)
            )
        for number in range(WORKER_COUNT):
            channels[0].basic_publish("", "work", str(number).encode())

        def all_have_one() -> bool:
            connection.process_data_events(0.05)
            return all(got.values())

        eventually(all_have_one, "each worker has a message")
        connection.close()
    assert sorted(body for bodies in got.values() for body in bodies) == [b"0", b"1", b"2", b"3", b"4"]


def test_a_group_has_no_more_readers_at_work_than_the_topic_has_partitions() -> None:
    with headrace.Broker() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("orders", PARTITION_COUNT)])["orders"].result()
        settings = {"bootstrap.servers": broker.bootstrap, "group.id": "billing"}
        readers = [Consumer(settings) for _ in range(PARTITION_COUNT + 1)]
        for reader in readers:
            reader.subscribe(["orders"])

        def shares() -> list[int]:
            for reader in readers:
                reader.poll(0.02)
            return sorted(len(reader.assignment()) for reader in readers)

        eventually(lambda: shares() == [0, 1, 1], "one reader has nothing to do", within_s=300)
        for reader in readers:
            reader.close()
