"""What is measured on one broker, in one round: a number per line of the table."""

from __future__ import annotations

import statistics
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

import psutil

from loads import CLIENTS, PARTITION_COUNTS, SIZES, Load, Tool, create_topic, described, run_workload

CONNECTION_COUNTS: Final = (1, 16)
SINGLE_S: Final = 5.0
SAMPLE_S: Final = 0.1
MIB: Final = 1024 * 1024

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
                label = described(record_bytes, partition_count)
                if scale.only not in label:
                    continue
                throughput = partial(
                    _throughput,
                    server,
                    java_tool,
                    partition_count=partition_count,
                    record_bytes=record_bytes,
                )
                if scale.only:
                    # In the whole run, the rows before have warmed the broker up.
                    throughput(scale=scale)
                results |= throughput(scale=scale)
                show(label)
        topic = create_topic(server.bootstrap, 1)
        for count in () if scale.only else CONNECTION_COUNTS:
            label = f"one record per request, {count} connection{'s' if count > 1 else ''}, requests/s"
            answer = run_workload(
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


def _throughput(
    server: Server, java_tool: Tool, *, partition_count: int, record_bytes: int, scale: Scale
) -> Results:
    results = {}
    for client in CLIENTS:
        load = Load(
            client=client,
            partition_count=partition_count,
            record_bytes=record_bytes,
            record_count=scale.records(record_bytes),
        )
        topic = create_topic(server.bootstrap, partition_count)
        results[f"produce, {load.label}, records/s"] = load.send(server.bootstrap, java_tool, topic)
        results[f"consume, {load.label}, records/s"] = statistics.median(
            load.read(server.bootstrap, java_tool, topic) for _ in range(scale.read_count)
        )
    return results


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
