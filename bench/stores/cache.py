"""How many upserts a second a cache takes.

    python bench/stores/cache.py                    # 1 million upserts of 250,000 keys, 3 runs
    python bench/stores/cache.py --upserts 100000 --runs 1

A pipeline on Spark reads JSON from a topic of a broker process and writes a hash of the Redis that Headrace
brings along, in a process of its own, which answers when a change is on disk (appendfsync always). The rate
is that of the batches of a pipeline that runs, from the planning of each to its commit, when all upserts come
at once. One run that does not count comes first. What the store itself takes is measured apart: the same
rows, prepared, from one connection of this process, by the calls that a task makes.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import redis

import headrace.streams as hr
from following import Place, change, following, place, told
from headrace.config import RedisConfig
from headrace.redis import EmbeddedRedis
from headrace.streams.sinks.cache.calls import WRITE, arguments, calls
from headrace.streams.sinks.cache.ledger import CacheLedger
from headrace.streams.sinks.cache.state import note_key
from headrace.streams.sinks.ledger import Batch

BATCH_RECORDS: Final = 250_000
WARM_UP: Final = 10_000
WANTED: Final = 50_000


def upserts(count: int, keys: int) -> Iterator[tuple[int, bytes]]:
    """Changes of keys that are drawn by chance."""
    chance = random.Random(1)
    for _ in range(count):
        key = chance.randrange(keys)
        yield key, change(key, total=chance.randrange(1000))


def by_pipeline(at: Place, url: str, run: int, count: int, keys: int) -> float:
    """Upserts a second of a pipeline."""
    store = hr.cache(url, f"orders-{run}", key="id", writers=2)
    with following(
        at, store, f"upserts-{run}", at.home / f"cache-{run}", batch_records=BATCH_RECORDS
    ) as follower:
        follower.follow(upserts(WARM_UP, keys))
        batches = follower.follow(upserts(count, keys))
    with redis.Redis.from_url(url) as client:
        assert client.hlen(store.hash_name) <= keys
        client.unlink(store.hash_name)
    return count * 1000 / sum(batch.duration_ms for batch in batches)


def by_itself(url: str, run: int, count: int, keys: int) -> float:
    """Upserts a second of one connection, as a task writes them."""
    store = hr.cache(url, f"prepared-{run}", key="id")
    ledger = CacheLedger(cache=store, pipeline="bench")
    batch = Batch(pipeline="bench", query_id="bench", batch_id=0, digest="-", is_first=True)
    rows = [(b"%d" % key, value) for key, value in upserts(count, keys)]
    number = ledger.begin_run(batch)
    begin_s = time.perf_counter()
    assert ledger.open_batch(batch, number)
    with redis.Redis.from_url(url, protocol=2) as client:
        write = client.register_script(WRITE)
        names = [store.hash_name, ledger.key, note_key(store.hash_name)]
        for call in calls(rows):
            write(keys=names, args=arguments(number, 0, call))
    assert ledger.close_batch(batch, number)
    seconds = time.perf_counter() - begin_s
    with redis.Redis.from_url(url) as client:
        assert client.hlen(store.hash_name) <= keys
        client.unlink(store.hash_name)
    return count / seconds


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--upserts", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=250_000)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    pipelines, itself = [], []
    with place() as at, EmbeddedRedis(RedisConfig(data_dir=Path(at.home))) as server:
        for run in range(options.runs + 1):
            pipelines.append(by_pipeline(at, server.url, run, options.upserts, options.keys))
            itself.append(by_itself(server.url, run, options.upserts, options.keys))
    print(
        f"{options.upserts:,} upserts of {options.keys:,} keys, {options.runs} runs: median (smallest to ",
        end="",
    )
    print("largest)\n\n| | upserts/s |\n|---|---|")
    print(f"| by a pipeline | {told(pipelines[1:], ',.0f')} |")
    print(f"| the store itself, one connection | {told(itself[1:], ',.0f')} |")
    print(f"\nwanted: at least {WANTED:,} by a pipeline")


if __name__ == "__main__":
    main()
