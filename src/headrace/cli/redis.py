"""`headrace redis`: the embedded Redis alone, in the foreground."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.embedded_server import LoopbackListen, serve
from headrace.cli.options import DataDir
from headrace.config import Address, Durability, RedisConfig
from headrace.errors import SetupError

if TYPE_CHECKING:
    from headrace.redis import EmbeddedRedis


def redis(
    data: DataDir,
    listen: LoopbackListen = "127.0.0.1:6379",
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
    serve(EmbeddedRedis(config), _greeting)


def _greeting(server: EmbeddedRedis) -> str:
    # The URL without the password, which ends with an @.
    address = server.url.rpartition("@")[2]
    return f"Redis is listening on redis://{address}, its password is in {server.home}/password"


def require_redis() -> None:
    """Raise where what the embedded Redis needs is not installed."""
    if find_spec("redis") is None:
        raise SetupError("the embedded Redis needs an extra: pip install 'headrace[stores]'")
