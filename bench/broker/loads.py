"""What a broker is loaded with: records of one size, sent and read by one client, in one topic."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from confluent_kafka.admin import AdminClient, NewTopic

from headrace.errors import ChildFailed

WORKLOADS: Final = Path(__file__).with_name("workloads.py")
CONFLUENT: Final = "confluent-kafka"
JAVA: Final = "Java"
CLIENTS: Final = (CONFLUENT, JAVA)
SIZES: Final = {100: 2_000_000, 1_000: 500_000}
"""How many records of each size are sent."""
PARTITION_COUNTS: Final = (1, 6)
LINGER_MS: Final = 5
FULL_BATCHES_LINGER_MS: Final = 1_000
LEADER_PAUSE_S: Final = 0.1

Tool = Callable[..., str]
"""Runs one of Kafka's own programs, and returns what it prints."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Records of one size, and who sends and reads them."""

    client: str
    partition_count: int
    record_bytes: int
    record_count: int

    @property
    def label(self) -> str:
        """As a row of the table begins."""
        return f"{self.client}, {described(self.record_bytes, self.partition_count)}"

    def send(self, bootstrap: str, tool: Tool, topic: str) -> float:
        """Send all records with acks=all; how many a second."""
        if self.client == JAVA:
            return self._send_java(bootstrap, tool, topic, LINGER_MS)
        answer = run_workload("produce", bootstrap=bootstrap, linger_ms=LINGER_MS, **self._records(topic))
        return answer["records_per_s"]

    def fill(self, bootstrap: str, tool: Tool, topic: str) -> None:
        """Send all records in full batches, and as evenly to all partitions as the client can be told to."""
        if self.client == JAVA:
            self._send_java(bootstrap, tool, topic, FULL_BATCHES_LINGER_MS)
        else:
            run_workload(
                "produce",
                bootstrap=bootstrap,
                linger_ms=FULL_BATCHES_LINGER_MS,
                evenly_over=self.partition_count,
                **self._records(topic),
            )

    def read(self, bootstrap: str, tool: Tool, topic: str) -> float:
        """Read all records; how many a second."""
        if self.client == JAVA:
            return self._read_java(bootstrap, tool, topic)
        return run_workload("consume", bootstrap=bootstrap, **self._records(topic))["records_per_s"]

    def _records(self, topic: str) -> dict[str, Any]:
        return {"topic": topic, "record_count": self.record_count, "record_bytes": self.record_bytes}

    def _send_java(self, bootstrap: str, tool: Tool, topic: str, linger_ms: int) -> float:
        output = tool(
            "org.apache.kafka.tools.ProducerPerformance",
            *("--topic", topic, "--throughput", "-1"),
            *("--num-records", str(self.record_count), "--record-size", str(self.record_bytes)),
            *("--producer-props", f"bootstrap.servers={bootstrap}", "acks=all", f"linger.ms={linger_ms}"),
        )
        last = next(line for line in reversed(output.splitlines()) if "records/sec" in line)
        return float(last.split(" records/sec")[0].split()[-1])

    def _read_java(self, bootstrap: str, tool: Tool, topic: str) -> float:
        output = tool(
            "org.apache.kafka.tools.ConsumerPerformance",
            *("--bootstrap-server", bootstrap, "--topic", topic),
            *("--messages", str(self.record_count), "--timeout", "60000"),
        )
        lines = [line.split(", ") for line in output.splitlines() if ", " in line]
        names, values = lines[-2:]
        row = dict(zip((name.strip() for name in names), values, strict=True))
        return float(row["fetch.nMsg.sec"])


def described(record_bytes: int, partition_count: int) -> str:
    """Size and number of partitions, in words."""
    return f"{record_bytes} B, {partition_count} partition{'s' if partition_count > 1 else ''}"


def run_workload(name: str, **arguments: object) -> dict[str, float]:
    """Run one of the programs of workloads.py to its end."""
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


def create_topic(bootstrap: str, partition_count: int) -> str:
    """A topic of a new name, once all its partitions have leaders."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    name = f"bench-{time.monotonic_ns()}"
    for future in admin.create_topics([NewTopic(name, partition_count, 1)]).values():
        future.result()
    # The leaders are known everywhere once the metadata names them all.
    while any(each.leader < 0 for each in admin.list_topics(name).topics[name].partitions.values()):
        time.sleep(LEADER_PAUSE_S)
    return name
