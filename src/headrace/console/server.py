"""Serves the console. This is the only file of the console that opens a socket to listen on."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import secrets
import signal
import socket
import threading
from typing import TYPE_CHECKING, Final

import uvicorn

from headrace.clock import SystemClock
from headrace.config import Address
from headrace.console.actions import Actions
from headrace.console.api import Back
from headrace.console.app import create_app
from headrace.console.board import Board
from headrace.console.catalog import KafkaCatalog
from headrace.console.feed import KafkaFeed, client_settings
from headrace.console.security import Session, new_token
from headrace.console.view import plain_view
from headrace.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from headrace.config import ConsoleConfig
    from headrace.console.app import Feed
    from headrace.console.event_api import EventDesk
    from headrace.console.view import View

SHUTDOWN_S_MAX: Final = 1
"""A page that does not take its last bytes within this is dropped."""
SPARE_CONNECTION_COUNT: Final = 100
"""Connections beyond the viewers': for the page's files, the API and health checks."""


def run_console(
    config: ConsoleConfig,
    on_ready: Callable[[str], None],
    *,
    view: View | None = None,
    event_desk: EventDesk | None = None,
) -> None:
    """Serve in the foreground until SIGINT, SIGTERM or Ctrl-C; then return, open streams or not.

    `on_ready` is called once, when connections are answered, with the URL to open: it has the token that lets
    a browser act. Raises ConfigError when the port is taken or may not be used.
    """
    server = ConsoleServer(config, view=view, event_desk=event_desk)
    server.run(lambda address: on_ready(f"http://{address}/?token={server.token}"))


class ConsoleServer:
    """A console that can also be stopped from another thread, and fed by something other than a broker."""

    def __init__(
        self,
        config: ConsoleConfig,
        *,
        view: View | None = None,
        feed: Feed | None = None,
        event_desk: EventDesk | None = None,
    ) -> None:
        self._config = config
        self._event_desk = event_desk
        self._view = view or plain_view(config)
        self._clock = SystemClock()
        self._feed = feed or KafkaFeed(config, self._clock, self._view)
        self.token: Final = config.token or new_token()
        """Lets a browser act, as `/?token=...`."""
        self._stop_asked = threading.Event()
        self._server: _Server | None = None

    def run(self, on_ready: Callable[[Address], None]) -> None:
        """Serve in this thread until `stop` is called or, in the main thread, a signal comes."""
        with _listen(self._config.listen) as listener:
            address = Address(self._config.listen.host, listener.getsockname()[1])
            board = Board(self._config, self._clock, session=secrets.token_hex(4), view=self._view)
            app = create_app(
                board,
                self._feed,
                address,
                lambda scope: server.hang_up(scope["client"]),
                self._back(address),
            )
            self._server = server = _Server(
                uvicorn.Config(
                    app,
                    log_config=None,
                    # That it serves is announced by whoever runs it.
                    log_level="warning",
                    access_log=False,
                    server_header=False,
                    proxy_headers=False,
                    http="h11",
                    ws="none",
                    lifespan="on",
                    limit_concurrency=self._config.viewer_count_max + SPARE_CONNECTION_COUNT,
                    timeout_graceful_shutdown=2 * SHUTDOWN_S_MAX,
                ),
                on_started=lambda: on_ready(address),
                on_stopping=board.viewers.close,
            )
            server.should_exit = self._stop_asked.is_set()
            try:
                server.run(sockets=[listener])
            finally:
                self._feed.stop()

    def _back(self, address: Address) -> Back:
        settings = client_settings(self._config)
        return Back(
            session=Session(address, self.token),
            actions=Actions(self._config, self._view, settings),
            catalog=KafkaCatalog(settings),
            alerts_topic=self._view.alerts,
            event_desk=self._event_desk,
        )

    def stop(self) -> None:
        """Ask the server to end; safe to call from any thread, at any time, more than once."""
        self._stop_asked.set()
        if self._server is not None:
            self._server.should_exit = True


class _Server(uvicorn.Server):
    """uvicorn, told to end open streams when it stops, and to return after a signal, not to die of it."""

    def __init__(
        self, config: uvicorn.Config, *, on_started: Callable[[], None], on_stopping: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._on_started = on_started
        self._on_stopping = on_stopping

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._on_stopping()
        asyncio.get_running_loop().call_later(SHUTDOWN_S_MAX, self._hang_up_all)
        await super().shutdown(sockets)

    def hang_up(self, client: tuple[str, int]) -> None:
        """End the connection of a client that does not read."""
        for connection in self.server_state.connections:
            if connection.transport.get_extra_info("peername")[:2] == client:
                connection.transport.abort()

    def _hang_up_all(self) -> None:
        for connection in self.server_state.connections:
            connection.transport.abort()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn does, but a signal that was obeyed is not raised a second time."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        former = {
            number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield
        finally:
            for number, handler in former.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002  # signal's signature
        """Stop; a second Ctrl-C does not wait for pages to take their last bytes."""
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True


def _listen(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        return socket.create_server((address.host, address.port), family=family, backlog=128)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(
                f"can't serve the console on {address}: another program uses that port; stop it, or choose "
                "another port (0 picks a free one)"
            ) from error
        raise ConfigError(f"can't serve the console on {address}: {error.strerror or error}") from error
