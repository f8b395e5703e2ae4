"""The console's web application. It opens no socket: a server, or a test, calls it.

/              the page
/static/...    its script, style and icon, from the package
/events        server-sent events: `alert` and `stats`, see board.py; resumes by Last-Event-ID
/api/stats     the numbers, as JSON
/api/alerts    the retained alerts, newest first, as JSON
/health        200 while the broker answers, 503 when it does not; the body says why
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from headrace.console.board import json_text
from headrace.console.security import HEADERS, LoopbackOnly

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.types import Receive, Send

    from headrace.config import Address
    from headrace.console.board import Board
    from headrace.console.observations import Observation
    from headrace.console.viewers import Viewer

HangUp = Callable[[Scope], None]
"""Ends the connection of a request at once: a client that does not read would else never let it go."""
Endpoint = Callable[[Request], Awaitable[Response]]

STATIC_DIR: Final = Path(__file__).parent / "static"
KEEP_ALIVE_S: Final = 15
RECONNECT_MS: Final = 1_000
RETRY_AFTER_S: Final = 5
TICK_S: Final = 1.0
UNHEALTHY: Final = frozenset({"unreachable", "failed"})


class Feed(Protocol):
    """Where observations come from. Both calls are made from the event loop's thread, in this order."""

    def start(self, post: Callable[[Observation], None]) -> None:
        """Begin to call `post`, from any thread, until `stop` has returned. `post` waits until it is done."""
        ...

    def stop(self) -> None:
        """Stop calling `post`; blocks until that is sure."""
        ...


def create_app(board: Board, feed: Feed, address: Address, hang_up: HangUp) -> Starlette:
    """The application for a console that browsers reach at `address`."""
    app = Starlette(
        routes=[
            Route("/", _page),
            Route("/events", _Events(board, hang_up)),
            Route("/api/stats", _json(board.stats)),
            Route("/api/alerts", _json(lambda: {"alerts": board.alerts()})),
            Route("/health", _health(board)),
            Mount("/static", _Static(directory=STATIC_DIR)),
        ],
        middleware=[Middleware(LoopbackOnly, address=address)],
        exception_handlers={404: _not_found, 500: _failed},
        lifespan=lambda _: _running(board, feed),
    )
    app.router.redirect_slashes = False
    return app


@contextlib.asynccontextmanager
async def _running(board: Board, feed: Feed) -> AsyncIterator[None]:
    loop = asyncio.get_running_loop()

    def post(observation: Observation) -> None:
        asyncio.run_coroutine_threadsafe(_apply(board, observation), loop).result()

    feed.start(post)
    ticking = asyncio.create_task(_tick(board))
    try:
        yield
    finally:
        board.viewers.close()
        await asyncio.to_thread(feed.stop)
        ticking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await ticking


async def _apply(board: Board, observation: Observation) -> None:
    board.apply(observation)


async def _tick(board: Board) -> None:
    while True:
        await asyncio.sleep(TICK_S)
        board.tick()


class _Events:
    """The stream of one page. A page counts as a viewer exactly while this call runs."""

    def __init__(self, board: Board, hang_up: HangUp) -> None:
        self._board = board
        self._hang_up = hang_up

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        viewer = self._board.join(_last_event_id(Request(scope)))
        if viewer is None:
            await _too_many_viewers(len(self._board.viewers))(scope, receive, send)
            return
        try:
            viewer.on_cut_off = partial(self._hang_up, scope)
            await EventSourceResponse(_server_sent(viewer), ping=KEEP_ALIVE_S)(scope, receive, send)
        finally:
            self._board.viewers.leave(viewer)


def _too_many_viewers(count: int) -> Response:
    return PlainTextResponse(
        f"{count} pages are open already, which is the limit: close one and try again.\n",
        status_code=503,
        headers={"Retry-After": str(RETRY_AFTER_S)},
    )


def _last_event_id(request: Request) -> str | None:
    """The header is what browsers send by themselves; a page that opens a new stream can't set it."""
    return request.headers.get("last-event-id") or request.query_params.get("last_event_id")


async def _server_sent(viewer: Viewer) -> AsyncIterator[ServerSentEvent]:
    yield ServerSentEvent(retry=RECONNECT_MS, comment="headrace")
    async for event in viewer.events():
        yield ServerSentEvent(event.data, event=event.name, id=event.id)


class _Static(StaticFiles):
    """The page's files. Browsers ask again each time, so that an upgrade is seen at once."""

    def file_response(self, *args: object, **kwargs: object) -> Response:
        """Starlette's answer, to be checked again before it is used from a cache."""
        response = super().file_response(*args, **kwargs)  # type: ignore[arg-type]  # passed on as they came
        response.headers["Cache-Control"] = "no-cache"
        return response


async def _page(_: Request) -> Response:
    return FileResponse(STATIC_DIR / "index.html", headers={"Cache-Control": "no-cache"})


def _json(answer: Callable[[], object]) -> Endpoint:
    async def endpoint(_: Request) -> Response:
        return _json_response(answer())

    return endpoint


def _health(board: Board) -> Endpoint:
    async def endpoint(_: Request) -> Response:
        status = board.status()
        return _json_response(
            {"status": status.kind, "words": status.words}, 503 if status.kind in UNHEALTHY else 200
        )

    return endpoint


def _json_response(value: object, status_code: int = 200) -> Response:
    return Response(
        json_text(value),
        status_code=status_code,
        media_type="application/json",
        headers={"Cache-Control": "no-store"},
    )


async def _not_found(request: Request, _: Exception) -> Response:
    return PlainTextResponse(
        f"There is no {request.url.path[:100]} here; the page is at /.\n", status_code=404
    )


async def _failed(_: Request, error: Exception) -> Response:
    return PlainTextResponse(
        f"The console failed ({type(error).__name__}); the terminal that it runs in says why.\n",
        status_code=500,
        headers=HEADERS,
    )
