"""`headrace redis`: the embedded Redis alone, in the foreground."""

from __future__ import annotations

import time
from importlib.util import find_spec
from typing import Annotated, Final

import typer

from headrace.cli.foreground import stop_on_signals
from headrace.cli.options import DataDir
from headrace.cli.output import announce
from headrace.config import Address, Durability, RedisConfig
from headrace.errors import SetupError

LOOP_PAUSE_S: Final = 0.2


def redis(
    data: DataDir,
    listen: Annotated[
        str, typer.Option(help="Where to listen, on this machine only; port 0 picks a free one.")
    ] = "127.0.0.1:6379",
    durability: Annotated[
        Durability, typer.Option(help="sync: answered means on disk. os: in the page cache, for tests.")
    ] = "sync",
) -> None:
    """Run the embedded Redis until Ctrl-C. Any client of it can connect, with the password.

    What is printed names the file that has the password, which only you can read.
    """
    require_redis()
    # What it needs is an extra: only who runs it may import it.
    from headrace.redis import EmbeddedRedis  # noqa: PLC0415

    config = RedisConfig(data_dir=data, listen=Address.parse(listen), durability=durability)
    stop_on_signals()
    try:
        with EmbeddedRedis(config) as server:
            # The URL without the password, which ends with an @.
            address = server.url.rpartition("@")[2]
            announce(f"Redis is listening on redis://{address}, its password is in {server.home}/password")
            while True:
                server.check()
                time.sleep(LOOP_PAUSE_S)
    except KeyboardInterrupt:
        pass


def require_redis() -> None:
    """Raise where what the embedded Redis needs is not installed."""
    if find_spec("redis") is None:
        raise SetupError("the embedded Redis needs an extra: pip install 'headrace[stores]'")
