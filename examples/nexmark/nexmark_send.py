"""Send made-up auctions to the topics `persons`, `auctions` and `bids`.

    python examples/nexmark/nexmark_send.py                          # 100,000 events at 127.0.0.1:9092
    python examples/nexmark/nexmark_send.py --events 5000 --seed 7

They are sent as fast as they are taken; the records' timestamps are the times at which they would have come.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from auction_house import KINDS, PAUSE_US, Arrival, arrivals

FLUSH_S_MAX = 60.0


def create_topics(bootstrap: str, partitions: int, *, prefix: str = "") -> None:
    """Create the topics, where they are missing. Their names begin with the prefix."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    created = admin.create_topics([NewTopic(prefix + kind, num_partitions=partitions) for kind in KINDS])
    for topic in created.values():
        try:
            topic.result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise


def send(bootstrap: str, events: Iterable[Arrival], partitions: int, *, prefix: str = "") -> int:
    """Write the events, to each partition in turn; return how many there were."""
    producer = Producer({"bootstrap.servers": bootstrap, "queue.buffering.max.messages": 200_000})
    sent_count = 0
    for event in events:
        key = event.row["auction" if event.kind == "bids" else "id"]
        value = json.dumps(event.row, separators=(",", ":"))
        while True:
            try:
                partition = event.number % partitions
                producer.produce(prefix + event.kind, value, str(key), partition, timestamp=event.arrived_ms)
                break
            except BufferError:
                producer.poll(0.1)
        sent_count += 1
        if sent_count % 1_000 == 0:
            producer.poll(0)
    if left := producer.flush(FLUSH_S_MAX):
        sys.exit(f"the broker at {bootstrap} did not take {left} events within {FLUSH_S_MAX:.0f} s")
    return sent_count


def main() -> None:
    """Send what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--partitions", type=int, default=2, help="of topics that are missing")
    parser.add_argument("--pause-us", type=int, default=PAUSE_US, help="between events, in microseconds")
    options = parser.parse_args()
    create_topics(options.bootstrap, options.partitions)
    events = arrivals(options.events, seed=options.seed, pause_us=options.pause_us)
    print(f"{send(options.bootstrap, events, options.partitions):,} events sent")


if __name__ == "__main__":
    main()
