"""A Redis for tests: one server for all of them, emptied after each.

The fixture `headrace_redis` gives a `TestRedis`. The server does not wait for the disk, and is gone with the
process that started it.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis

from headrace.config import RedisConfig
from headrace.redis import EmbeddedRedis


@contextmanager
def redis_server(**settings: Any) -> Iterator[EmbeddedRedis]:
    """A server in a temporary directory; `settings` are those of RedisConfig."""
    directory = Path(tempfile.mkdtemp(prefix="headrace-redis-"))
    try:
        with EmbeddedRedis(RedisConfig(data_dir=directory, durability="os", **settings)) as server:
            yield server
    finally:
        shutil.rmtree(directory)


class TestRedis:
    """An empty Redis. `url` is how to reach it, and `client` reads and writes texts."""

    __test__ = False
    """Not a class of tests, whatever pytest may think of the name."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.client = redis.Redis.from_url(url, decode_responses=True)


@contextmanager
def fresh_redis(server: EmbeddedRedis) -> Iterator[TestRedis]:
    """A server without any keys; what the test has written is gone afterwards."""
    cache = TestRedis(server.url)
    with cache.client as client:
        client.flushall()
        yield cache
        client.flushall()
