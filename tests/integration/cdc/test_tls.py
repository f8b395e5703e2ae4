"""A capture over TLS, of a server that shows a certificate.

The PostgreSQL of the wheel is built without TLS, so what speaks it is a small proxy before the server: it
answers the client's request for TLS as a server does, and hands on what is inside.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trustme
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from headrace.cdc.connection import connect
from headrace.errors import ConfigError

if TYPE_CHECKING:
    from tests.integration.cdc.conftest import World

ORDERS = "shop.public.orders"
TLS_WANTED = 80877103
"""What a client sends in place of a version to ask for TLS."""


class TlsProxy:
    """Speaks TLS on a port of its own, and refuses whoever does not."""

    def __init__(self, dsn: str, certificate: trustme.LeafCert) -> None:
        reached = conninfo_to_dict(dsn)
        self._path = f"{reached['host']}/.s.PGSQL.{reached['port']}"
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        certificate.configure_cert(self._context)
        self._loop: asyncio.AbstractEventLoop
        self._is_over: asyncio.Event
        self.port = 0
        self.connection_count = 0

    @contextmanager
    def running(self) -> Iterator[None]:
        """On a thread of its own."""
        is_ready = threading.Event()
        thread = threading.Thread(target=lambda: asyncio.run(self._serve(is_ready)), name="tls")
        thread.start()
        assert is_ready.wait(60)
        try:
            yield
        finally:
            self._loop.call_soon_threadsafe(self._is_over.set)
            thread.join()

    async def _serve(self, is_ready: threading.Event) -> None:
        self._loop, self._is_over = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._take, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        is_ready.set()
        await self._is_over.wait()
        server.close()

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            asked = await reader.readexactly(8)
            if int.from_bytes(asked[4:]) != TLS_WANTED:
                return
            writer.write(b"S")
            await writer.drain()
            await writer.start_tls(self._context)
            self.connection_count += 1
            inner_reader, inner_writer = await asyncio.open_unix_connection(self._path)
            await asyncio.gather(_pass(reader, inner_writer), _pass(inner_reader, writer))
        except (OSError, asyncio.IncompleteReadError):
            # Who does not like the certificate goes away.
            pass
        finally:
            writer.close()


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()


def dsn_of(world: World, proxy: TlsProxy, authority: Path, *, host: str = "localhost") -> str:
    return make_conninfo(
        world.config.dsn,
        host=host,
        hostaddr="127.0.0.1",
        port=proxy.port,
        sslmode="verify-full",
        sslrootcert=str(authority),
        gssencmode="disable",
    )


@pytest.fixture
def authority() -> trustme.CA:
    """Who signs the server's certificate."""
    return trustme.CA()


@pytest.fixture
def proxy(world: World, authority: trustme.CA) -> Iterator[TlsProxy]:
    """The database's server, which calls itself localhost."""
    proxy = TlsProxy(world.config.dsn, authority.issue_cert("localhost"))
    with proxy.running():
        yield proxy


def test_rows_and_changes_come_from_a_server_that_proves_who_it_is(
    world: World, proxy: TlsProxy, authority: trustme.CA, tmp_path: Path
) -> None:
    world.database.execute("CREATE TABLE orders (id int PRIMARY KEY, v text)")
    world.database.execute("INSERT INTO orders SELECT n, 'v' FROM generate_series(1, 120) n")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    topics = world.follow(ORDERS)
    with world.running(dsn=dsn_of(world, proxy, tmp_path / "ca.pem")):
        world.await_streaming()
        world.database.execute("UPDATE orders SET v = 'new' WHERE id < 50")
        world.eventually_equal(topics, ORDERS, "orders")
    # One that looks, one that streams, and those that read the rows.
    assert proxy.connection_count >= 2 + world.config.reader_count


@pytest.mark.parametrize(
    ("host", "words"),
    [("localhost", "certificate verify failed"), ("db.example", "does not match host name")],
)
def test_a_server_that_is_not_the_one_that_was_named_is_refused_at_once(
    world: World, proxy: TlsProxy, authority: trustme.CA, tmp_path: Path, host: str, words: str
) -> None:
    trusted = trustme.CA() if host == "localhost" else authority
    trusted.cert_pem.write_to_path(tmp_path / "ca.pem")
    with pytest.raises(ConfigError, match=words):
        connect(dsn_of(world, proxy, tmp_path / "ca.pem", host=host))
