"""Client programs that load a broker, each run as a process: `python bench/broker/workloads.py NAME JSON`.

Each prints one line of JSON. The same program runs against every broker, so that what the client costs is
the same for all of them.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from collections.abc import Callable
from struct import Struct
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from headrace.log.batch import encode_batch
from headrace.log.record import Record

SIZE: Final = Struct(">i")
PRODUCE_V3: Final = Struct(">hhih")
QUEUE_MESSAGES: Final = 200_000
RUN_COUNT: Final = 1_000
"""How many records go to a partition before the next has its turn, where they are sent evenly."""
PARTITION_UA: Final = -1
"""By which the client is asked to decide."""
CONSUME_COUNT: Final = 10_000
QUEUE_PAUSE_MS: Final = 5
"""By default librdkafka pauses for a second each time it has fetched 100,000 records or 64 MB ahead: a broker
that is fast enough to make it pause would look slower than another. To have it fetch further ahead instead
would cost the client memory, and a sixth of its speed, the more the faster the broker is."""


def produce(
    bootstrap: str, topic: str, record_count: int, record_bytes: int, *, linger_ms: int, evenly_over: int = 0
) -> dict[str, float]:
    """Send records with confluent-kafka, acks=all, and wait until all are acknowledged.

    `evenly_over` so many partitions, or else as the client decides.
    """
    errors: list[str] = []

    def on_delivery(error: Any, _message: Any) -> None:
        if error is not None:
            errors.append(str(error))

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "linger.ms": linger_ms,
            "queue.buffering.max.messages": QUEUE_MESSAGES,
            "on_delivery": on_delivery,
        }
    )
    producer.list_topics(topic, timeout=10)
    value = bytes(record_bytes)
    started_s = time.perf_counter()
    for number in range(record_count):
        partition = number // RUN_COUNT % evenly_over if evenly_over else PARTITION_UA
        while True:
            try:
                producer.produce(topic, value, partition=partition)
                break
            except BufferError:
                producer.poll(0.01)
        producer.poll(0)
    producer.flush()
    seconds = time.perf_counter() - started_s
    if errors:
        raise SystemExit(f"{len(errors)} records were not acknowledged: {errors[0]}")
    return {"records_per_s": record_count / seconds}


def consume(bootstrap: str, topic: str, record_count: int, record_bytes: int) -> dict[str, float]:
    """Read records from the beginning with confluent-kafka. The time runs from the first that arrive."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": QUEUE_PAUSE_MS,
        }
    )
    partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
    first = len(consumer.consume(1, timeout=60))
    seen = first
    started_s = time.perf_counter()
    while seen < record_count:
        # Who asks for more than there is waits for it until the time is up, and that would be measured.
        for message in consumer.consume(min(CONSUME_COUNT, record_count - seen), timeout=1):
            if message.error() is not None:
                raise SystemExit(f"consuming failed: {message.error()}")
            assert len(message.value() or b"") == record_bytes
            seen += 1
    seconds = time.perf_counter() - started_s
    consumer.close()
    return {"records_per_s": (seen - first) / seconds}


def single(bootstrap: str, topic: str, connection_count: int, seconds: float) -> dict[str, float]:
    """One record of 1,000 bytes per request, acks=all, the next once the last is acknowledged."""
    frame = _produce_frame(topic, bytes(1_000))
    counts = [0] * connection_count
    begin = threading.Barrier(connection_count + 1)
    stopping = threading.Event()

    def run(number: int) -> None:
        with _connect(bootstrap) as connection:
            _round_trip(connection, frame)
            begin.wait()
            while not stopping.is_set():
                _round_trip(connection, frame)
                counts[number] += 1

    threads = [threading.Thread(target=run, args=(number,)) for number in range(connection_count)]
    for thread in threads:
        thread.start()
    begin.wait()
    started_s = time.perf_counter()
    time.sleep(seconds)
    stopping.set()
    elapsed_s = time.perf_counter() - started_s
    total = sum(counts)
    for thread in threads:
        thread.join()
    return {"requests_per_s": total / elapsed_s}


def _connect(bootstrap: str) -> socket.socket:
    host, port = bootstrap.rsplit(":", 1)
    connection = socket.create_connection((host, int(port)), timeout=30)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _produce_frame(topic: str, value: bytes) -> bytes:
    """A Produce request, version 3, with one batch of one record for partition 0."""
    batch = encode_batch([Record(timestamp_ms=time.time_ns() // 1_000_000, key=None, value=value)])
    name = topic.encode()
    body = b"".join(
        (
            PRODUCE_V3.pack(0, 3, 1, -1),
            (-1).to_bytes(2, "big", signed=True),
            (-1).to_bytes(2, "big", signed=True),
            (30_000).to_bytes(4, "big"),
            (1).to_bytes(4, "big"),
            len(name).to_bytes(2, "big") + name,
            (1).to_bytes(4, "big"),
            (0).to_bytes(4, "big"),
            len(batch).to_bytes(4, "big") + batch,
        )
    )
    return SIZE.pack(len(body)) + body


def _round_trip(connection: socket.socket, frame: bytes) -> None:
    connection.sendall(frame)
    answer = connection.recv(4096)
    while len(answer) < SIZE.size or len(answer) < SIZE.size + SIZE.unpack_from(answer)[0]:
        more = connection.recv(4096)
        if not more:
            raise SystemExit("the broker closed the connection")
        answer += more


WORKLOADS: Final[dict[str, Callable[..., dict[str, float]]]] = {
    "produce": produce,
    "consume": consume,
    "single": single,
}


if __name__ == "__main__":
    print(json.dumps(WORKLOADS[sys.argv[1]](**json.loads(sys.argv[2]))))
