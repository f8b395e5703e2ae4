"""How fast the same records are read from each broker, by turns: Apache Kafka 4.3.1 and ours.

    python bench/broker/reads.py                     # 15 turns, about 25 minutes
    python bench/broker/reads.py --turns 5 --only "1000 B, 6 partitions" --client Java

A read of half a gigabyte takes half a second, and the same read differs by a tenth from one time to the next,
by more from one minute to another. So all three brokers run at once, each has the same records, in batches of
the same size, and in each turn each of them is read once, in an order that is drawn anew. What is compared
are the reads of a turn, which lie seconds apart: the ratio is the median of the turns' ratios. In brackets is
where the median of endlessly many turns would be, with 95 % certainty or more, as far as turns don't depend
on each other; of fewer than six turns nothing is that certain.

The records are sent by the client that reads them, and wait for full batches, so that a broker that answers
sooner has not got more and smaller ones. confluent-kafka is told which partition to send to, and all are
equally long, but for a thousand records: left to itself while it waits for full batches, it sent all records
to one of six. Java's client can't be told. Before the first turn, each is read twice.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import sys
import time
from contextlib import ExitStack
from functools import partial
from typing import Final

from apache_kafka import ApacheKafka, run_java, server_jars
from headrace.config import Durability
from headrace_server import HeadraceServer
from loads import CLIENTS, PARTITION_COUNTS, SIZES, Load, Tool, create_topic

KAFKA: Final = "Kafka"
OURS: Final[dict[str, Durability]] = {"ours, sync": "sync", "ours, os": "os"}
WARM_UP_READS: Final = 2
CERTAINTY: Final = 0.95

Rates = dict[str, list[float]]
"""Records a second of each broker, turn by turn."""


def main() -> None:
    """Fill the brokers, read by turns, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--turns", type=int, default=15, help="how often each broker is read (15)")
    parser.add_argument("--only", default="", help="only sizes and partitions that are so called")
    parser.add_argument("--client", choices=CLIENTS, help="only this client")
    parser.add_argument("--seed", type=int, default=1, help="of the order within a turn (1)")
    options = parser.parse_args()
    order = random.Random(options.seed)
    clients = [options.client] if options.client else CLIENTS
    java_tool = partial(run_java, server_jars(_show))
    print(f"{options.turns} turns: medians, and where those of the ratios lie with 95 % certainty\n")
    print("| records/s | Kafka | ours, sync | ratio | ours, os | ratio |\n|---|---|---|---|---|---|")
    with ExitStack() as running:
        bootstraps = {KAFKA: running.enter_context(ApacheKafka(heap="1g")).bootstrap}
        for name, durability in OURS.items():
            server = running.enter_context(HeadraceServer(durability))
            bootstraps[name] = server.bootstrap
        for partition_count in PARTITION_COUNTS:
            for record_bytes, record_count in SIZES.items():
                for client in clients:
                    load = Load(
                        client=client,
                        partition_count=partition_count,
                        record_bytes=record_bytes,
                        record_count=record_count,
                    )
                    if options.only in load.label:
                        rates = _by_turns(bootstraps, java_tool, load, options.turns, order)
                        print(_row(load.label, rates), flush=True)


def _by_turns(
    bootstraps: dict[str, str], tool: Tool, load: Load, turn_count: int, order: random.Random
) -> Rates:
    topics = {name: _filled(bootstrap, tool, load) for name, bootstrap in bootstraps.items()}
    rates: Rates = {name: [] for name in bootstraps}
    for turn in range(turn_count + WARM_UP_READS):
        for name in order.sample(list(bootstraps), len(bootstraps)):
            rate = load.read(bootstraps[name], tool, topics[name])
            if turn >= WARM_UP_READS:
                rates[name].append(rate)
        _show(f"{load.label}: turn {turn + 1}")
    return rates


def _filled(bootstrap: str, tool: Tool, load: Load) -> str:
    topic = create_topic(bootstrap, load.partition_count)
    load.fill(bootstrap, tool, topic)
    return topic


def _row(label: str, rates: Rates) -> str:
    cells = [f"{statistics.median(rates[KAFKA]):,.0f}"]
    for name in OURS:
        cells += [f"{statistics.median(rates[name]):,.0f}", _ratio(rates[name], rates[KAFKA])]
    return f"| {label} | {' | '.join(cells)} |"


def _ratio(ours: list[float], theirs: list[float]) -> str:
    ratios = sorted(our / their for our, their in zip(ours, theirs, strict=True))
    middle, outside = f"{statistics.median(ratios):.2f}", _outside_count(len(ratios))
    if not outside:
        return middle
    return f"{middle} ({ratios[outside - 1]:.2f} to {ratios[-outside]:.2f})"


def _outside_count(turn_count: int) -> int:
    """The how manieth smallest and largest are the ends of where the median lies; 0 where none is certain.

    Each turn lies below the median as likely as above it. So the k-th smallest of n turns lies above it if
    fewer than k lie below, as often as a coin that is thrown n times shows fewer than k heads.
    """
    fewer, count = 1, 0
    while 2 * fewer <= (1 - CERTAINTY) * 2**turn_count:
        count += 1
        fewer += math.comb(turn_count, count)
    return count


def _show(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
