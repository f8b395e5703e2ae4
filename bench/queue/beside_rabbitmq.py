"""Work queues beside RabbitMQ: throughput with confirms, latency at a steady rate, memory of what waits.

    python bench/queue/beside_rabbitmq.py              # 3 rounds, about 10 minutes
    python bench/queue/beside_rabbitmq.py --rounds 1 --share 0.1
    python bench/queue/beside_rabbitmq.py --part latency --rounds 9

Each round starts both servers one after the other, each alone on the machine and on an empty directory:
RabbitMQ (Debian's package) with its default settings and a classic durable queue, and ours with durability
`sync`, its default: a confirm means on disk by fdatasync. The load is the same program for both (load.py).
Messages are persistent and have 1 KB; each is confirmed to its publisher and acknowledged by its consumer.

A ratio is ours divided by RabbitMQ's, of the medians: above 1 is more work done per second. For times and
memory it is a share: below 1 is less.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final, Protocol

import psutil

from headrace.errors import ChildFailed
from headrace_queues import HeadraceQueues
from rabbitmq_server import RabbitMQ

LOAD: Final = Path(__file__).with_name("load.py")
THROUGHPUT_COUNT: Final = 200_000
CLIENT_COUNTS: Final = (1, 4)
RATE: Final = 1000
RATE_S: Final = 20.0
WAITING_COUNT: Final = 1_000_000
MB: Final = 1_000_000
NAMES: Final = ("RabbitMQ", "ours")
PARTS: Final = ("throughput", "latency", "waiting")

Results = dict[str, float]


class Server(Protocol):
    """A queue server that runs."""

    port: int

    @property
    def pid(self) -> int:
        """Its process."""
        ...


STARTS: Final[dict[str, Callable[[], AbstractContextManager[Server]]]] = {
    "RabbitMQ": RabbitMQ,
    "ours": HeadraceQueues,
}


def main() -> None:
    """Run the rounds and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="how often everything is measured (3)")
    parser.add_argument("--share", type=float, default=1.0, help="how much of the full work is done (1.0)")
    parser.add_argument("--only", choices=NAMES, help="measure one server only")
    parser.add_argument("--part", choices=PARTS, action="append", help="measure only this; may be repeated")
    options = parser.parse_args()
    parts = options.part or PARTS
    names = [options.only] if options.only else list(NAMES)
    rounds: dict[str, list[Results]] = {name: [] for name in names}
    for number in range(options.rounds):
        for name in names:
            _show(f"round {number + 1}: {name}")
            with STARTS[name]() as server:
                rounds[name].append(measure(server, options.share, parts))
    print(f"{options.rounds} rounds, medians\n")
    print(_table({name: _median(results) for name, results in rounds.items()}))


def measure(server: Server, share: float, parts: Sequence[str]) -> Results:
    """What is asked for, on one server that has just been started."""
    work = {"throughput": _throughput, "latency": _latency, "waiting": _waiting}
    results: Results = {}
    for part in parts:
        results |= work[part](server, share)
    return results


def _throughput(server: Server, share: float) -> Results:
    results: Results = {}
    for count in CLIENT_COUNTS:
        label = f"{count} publisher{'s' if count > 1 else ''} and {count} consumer{'s' if count > 1 else ''}"
        answer = _load(
            "flood",
            port=server.port,
            queue=f"flood-{count}",
            message_count=max(4_000, int(THROUGHPUT_COUNT * share)),
            publisher_count=count,
            consumer_count=count,
        )
        results[f"{label}, messages/s"] = answer["messages_per_s"]
        results[f"{label}, confirmed/s"] = answer["confirmed_per_s"]
        _show(f"{label}: {answer['messages_per_s']:,.0f} messages/s")
    return results


def _latency(server: Server, share: float) -> Results:
    answer = _load("paced", port=server.port, queue="paced", rate=RATE, seconds=max(3.0, RATE_S * share))
    _show(f"latency: {answer}")
    return {
        f"publish to deliver at {RATE:,}/s, {name}, ms": answer[f"{name}_ms"]
        for name in ("p50", "p99", "max")
    }


def _waiting(server: Server, share: float) -> Results:
    """What messages cost that nobody takes."""
    count = max(10_000, int(WAITING_COUNT * share))
    before_mb = _memory_mb(server.pid)
    answer = _load(
        "flood",
        port=server.port,
        queue="waiting",
        message_count=count,
        publisher_count=2,
        consumer_count=0,
    )
    after_mb = _memory_mb(server.pid)
    _show(f"{count:,} waiting: {before_mb:.0f} MB before, {after_mb:.0f} MB after")
    return {
        f"{count:,} messages waiting, memory in all, MB": after_mb,
        f"{count:,} messages waiting, memory for them, MB": max(0.1, after_mb - before_mb),
        f"{count:,} messages without a consumer, confirmed/s": answer["confirmed_per_s"],
    }


def _memory_mb(pid: int) -> float:
    root = psutil.Process(pid)
    return sum(each.memory_info().rss for each in (root, *root.children(recursive=True))) / MB


def _load(name: str, **arguments: object) -> Results:
    done = subprocess.run(
        [sys.executable, str(LOAD), name, json.dumps(arguments)], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise ChildFailed(f"the load {name} {arguments} failed: {done.stderr[-500:]}")
    answer: Results = json.loads(done.stdout)
    return answer


def _median(rounds: list[Results]) -> Results:
    return {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}


def _table(medians: dict[str, Results]) -> str:
    first = next(iter(medians.values()))
    has_both = len(medians) == len(NAMES)
    lines = [f"| | {' | '.join(medians)} |" + (" ratio |" if has_both else "")]
    lines.append("|---|" + "---|" * (len(medians) + has_both))
    for label in first:
        values = [results[label] for results in medians.values()]
        cells = [_number(value) for value in values]
        if has_both:
            cells.append(f"{values[1] / values[0]:.2f}")
        lines.append(f"| {label} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.2f}"


def _show(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
