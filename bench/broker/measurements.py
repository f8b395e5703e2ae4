"""What is measured on one broker, in one round: a number per line of the table."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Protocol

import psutil
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.errors import ChildFailed

WORKLOADS: Final = Path(__file__).with_name("workloads.py")
SIZES: Final = {100: 2_000_000, 1_000: 500_000}
"""How many records of each size are sent."""
PARTITION_COUNTS: Final = (1, 6)
CONNECTION_COUNTS: Final = (1, 16)
SINGLE_S: Final = 5.0
SAMPLE_S: Final = 0.1
MIB: Final = 1024 * 1024

Tool = Callable[..., str]
Results = dict[str, float]


class Server(Protocol):
    """A broker that runs."""

    @property
    def bootstrap(self) -> str:
        """Where clients connect."""
        ...

    @property
    def pid(self) -> int:
        """Its process."""
        ...


@dataclass(frozen=True, slots=True)
class Scale:
    """How much of the full work is done; a trial run does less."""

    share: float = 1.0
    read_count: int = 1
    """How often the same records are read; the median counts."""
    only: str = ""
    """What the label of a size and a number of partitions must have in it to be measured."""

    def records(self, record_bytes: int) -> int:
        """How many records of a size are sent."""
        return max(1_000, int(SIZES[record_bytes] * self.share))

    def seconds(self) -> float:
        """How long single requests are sent."""
        return max(1.0, SINGLE_S * self.share)


def measure(server: Server, java_tool: Tool, scale: Scale, show: Callable[[str], None]) -> Results:
    """Everything, on one broker that has just been started."""
    results: Results = {"memory idle, MB": _rss_mb(server.pid)}
    with _peak_memory(server.pid) as peak:
        for partition_count in PARTITION_COUNTS:
            for record_bytes in SIZES:
                label = f"{record_bytes} B, {_partitions(partition_count)}"
                if scale.only not in label:
                    continue
                throughput = partial(
                    _throughput,
                    server,
                    java_tool,
                    label,
                    partition_count=partition_count,
                    record_bytes=record_bytes,
                )
                if scale.only:
                    # In the whole run, the rows before have warmed the broker up.
                    throughput(scale=scale)
                results |= throughput(scale=scale)
                show(label)
        topic = _create_topic(server.bootstrap, 1)
        for count in () if scale.only else CONNECTION_COUNTS:
            label = f"one record per request, {count} connection{'s' if count > 1 else ''}, requests/s"
            answer = _workload(
                "single",
                bootstrap=server.bootstrap,
                topic=topic,
                connection_count=count,
                seconds=scale.seconds(),
            )
            results[label] = answer["requests_per_s"]
            show(label)
    return results | {"memory under load, MB": max(peak)}


def median(rounds: list[Results]) -> Results:
    """The median of each number over all rounds."""
    return {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}


def _partitions(count: int) -> str:
    return f"{count} partition{'s' if count > 1 else ''}"


def _throughput(
    server: Server, java_tool: Tool, label: str, *, partition_count: int, record_bytes: int, scale: Scale
) -> Results:
    count = scale.records(record_bytes)
    results = {}
    for client, send, read in (
        ("confluent-kafka", _produce_confluent, _consume_confluent),
        ("Java", _produce_java, _consume_java),
    ):
        topic = _create_topic(server.bootstrap, partition_count)
        results[f"produce, {client}, {label}, records/s"] = send(
            server.bootstrap, java_tool, topic, count, record_bytes
        )
        results[f"consume, {client}, {label}, records/s"] = statistics.median(
            read(server.bootstrap, java_tool, topic, count, record_bytes) for _ in range(scale.read_count)
        )
    return results


def _produce_confluent(bootstrap: str, _tool: Tool, topic: str, count: int, size: int) -> float:
    answer = _workload("produce", bootstrap=bootstrap, topic=topic, record_count=count, record_bytes=size)
    return answer["records_per_s"]


def _consume_confluent(bootstrap: str, _tool: Tool, topic: str, count: int, size: int) -> float:
    answer = _workload("consume", bootstrap=bootstrap, topic=topic, record_count=count, record_bytes=size)
    return answer["records_per_s"]


def _produce_java(bootstrap: str, tool: Tool, topic: str, count: int, size: int) -> float:
    output = tool(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", topic, "--num-records", str(count), "--record-size", str(size), "--throughput", "-1"),
        *("--producer-props", f"bootstrap.servers={bootstrap}", "acks=all"),
    )
    last = next(line for line in reversed(output.splitlines()) if "records/sec" in line)
    return float(last.split(" records/sec")[0].split()[-1])


def _consume_java(bootstrap: str, tool: Tool, topic: str, count: int, _size: int) -> float:
    output = tool(
        "org.apache.kafka.tools.ConsumerPerformance",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--messages", str(count), "--timeout", "60000"),
    )
    lines = [line.split(", ") for line in output.splitlines() if ", " in line]
    names, values = lines[-2:]
    row = dict(zip((name.strip() for name in names), values, strict=True))
    return float(row["fetch.nMsg.sec"])


def _workload(name: str, **arguments: object) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, str(WORKLOADS), name, json.dumps(arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise ChildFailed(f"the workload {name} {arguments} failed: {done.stderr[-500:]}")
    answer: dict[str, float] = json.loads(done.stdout)
    return answer


def _create_topic(bootstrap: str, partition_count: int) -> str:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    name = f"bench-{time.monotonic_ns()}"
    for future in admin.create_topics([NewTopic(name, partition_count, 1)]).values():
        future.result()
    # The leaders are known everywhere once the metadata names them all.
    while any(each.leader < 0 for each in admin.list_topics(name).topics[name].partitions.values()):
        time.sleep(SAMPLE_S)
    return name


def _rss_mb(pid: int) -> float:
    return float(psutil.Process(pid).memory_info().rss / MIB)


@contextmanager
def _peak_memory(pid: int) -> Iterator[list[float]]:
    """Samples of the resident memory, for as long as the block runs."""
    samples = [_rss_mb(pid)]
    done = threading.Event()

    def sample() -> None:
        while not done.wait(SAMPLE_S):
            samples.append(_rss_mb(pid))

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield samples
    finally:
        done.set()
        thread.join()
