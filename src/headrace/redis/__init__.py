"""A Redis at hand: an embedded one that needs no set-up, for laptops, demos and tests.

    with EmbeddedRedis(RedisConfig(data_dir=Path(".headrace"))) as server:
        ...                                     # any client of Redis can use server.url

- server      starts and stops it; what a crash has left running is stopped first
- settings    what its file of settings says
- program     finds its program: the user's choice, the wheel's, the system's own
"""

from __future__ import annotations

from headrace.redis.server import EmbeddedRedis

__all__ = ["EmbeddedRedis"]
