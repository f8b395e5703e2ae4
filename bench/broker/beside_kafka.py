"""The broker beside Apache Kafka 4.3.1: throughput, single requests, memory, start-up.

    python bench/broker/beside_kafka.py              # 3 rounds, about 15 minutes
    python bench/broker/beside_kafka.py --rounds 1 --share 0.1
    python bench/broker/beside_kafka.py --only "1000 B, 6 partitions" --reads 5

Each round starts three brokers one after the other, each alone on the machine and on an empty directory:
Kafka with its default settings (1 GiB of heap, as its start script has it), ours with durability `sync` (its
default: acknowledged means on disk) and with durability `os` (acknowledged means in the page cache, which is
Kafka's default). The clients are the same programs for all: Kafka's own ProducerPerformance and
ConsumerPerformance, confluent-kafka, and for single requests a socket that sends the same frame again once
the last one was answered. All producers use acks=all.

With `--only`, all of it is done once before it is measured: in a whole run, the rows before have warmed the
brokers up.

A ratio is ours divided by Kafka's, of the medians: above 1 is more work done per second. For memory and
start-up it is a share: below 1 is less.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from apache_kafka import ApacheKafka, run_java, server_jars
from headrace_server import HeadraceServer
from measurements import Results, Scale, Server, measure, median

KAFKA = "Kafka"
SYNC = "ours, sync"
OS = "ours, os"


def main() -> None:
    """Run the rounds and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="how often everything is measured (3)")
    parser.add_argument("--share", type=float, default=1.0, help="how much of the full work is done (1.0)")
    parser.add_argument("--reads", type=int, default=1, help="how often the same records are read (1)")
    parser.add_argument("--only", default="", help="only sizes and partitions that are so called")
    options = parser.parse_args()
    scale = Scale(options.share, options.reads, options.only)
    java_tool = partial(run_java, server_jars(_show))
    rounds: dict[str, list[Results]] = {KAFKA: [], SYNC: [], OS: []}
    for number in range(options.rounds):
        for name, results in rounds.items():
            _show(f"round {number + 1}: {name}")
            with _started(name) as (server, start_s):
                measured = measure(server, java_tool, scale, _show)
            results.append(measured | {"start-up, s": start_s})
    print(f"{options.rounds} rounds, medians\n")
    print(_table({name: median(results) for name, results in rounds.items()}))


@contextmanager
def _started(name: str) -> Iterator[tuple[Server, float]]:
    if name == KAFKA:
        with ApacheKafka(heap="1g") as kafka:
            yield kafka, kafka.start_s
    else:
        with HeadraceServer("sync" if name == SYNC else "os") as server:
            yield server, server.start_s


def _table(medians: dict[str, Results]) -> str:
    lines = ["| | Kafka | ours, sync | ratio | ours, os | ratio |", "|---|---|---|---|---|---|"]
    for label, kafka in medians[KAFKA].items():
        sync, os = medians[SYNC][label], medians[OS][label]
        cells = (_number(kafka), _number(sync), _ratio(sync, kafka), _number(os), _ratio(os, kafka))
        lines.append(f"| {label} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.2f}"


def _ratio(ours: float, theirs: float) -> str:
    return f"{ours / theirs:.2f}"


def _show(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
