"""The console's web application. It opens no socket: a server, or a test, calls it.

/ /topics /topics/NAME /pipelines /stores /event-store /groups
                     the pages; each with ?token=... lets a browser in: see security.py
/static/... /vendor/...                      their files, from this package and from the chart library's
/events              server-sent events: `alert` and `stats`, see board.py; resumes by Last-Event-ID
/api/stats           the numbers, as JSON
/api/alerts          the retained alerts, newest first, as JSON
/api/session         whether this browser may act
/api/topics /api/topics/NAME /api/groups     what the broker has: see catalog.py
/api/stores          stores, how far behind they are, and the last changes: see travel.py; keys with the token
/api/event-store...  an event store, for whoever was given the token: see event_api.py
/health              200 while the broker answers, 503 when it does not; the body says why

For whoever was given the token:

GET  /api/topics/NAME/messages   the newest records of a topic
GET  /api/recount                the alerts topic, counted from its beginning: see recount.py
POST /api/pipelines/NAME/kill    kill -9 for the driver: see actions.py
POST /api/controls/NAME          {"value": 500}: move a slider
POST /api/buttons/NAME           press a button of the view
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from headrace.console.api import Api, Back, Endpoint, json_response
from headrace.console.event_api import EventApi
from headrace.console.observations import ControlMoved
from headrace.console.pages import PAGES, page, plotly_dir
from headrace.console.security import HEADERS, LoopbackOnly, Session

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.types import Receive, Send

    from headrace.config import Address
    from headrace.console.board import Board
    from headrace.console.observations import Observation
    from headrace.console.viewers import Viewer

HangUp = Callable[[Scope], None]
"""Ends the connection of a request at once: a client that does not read would else never let it go."""

STATIC_DIR: Final = Path(__file__).parent / "static"
KEEP_ALIVE_S: Final = 15
RECONNECT_MS: Final = 1_000
RETRY_AFTER_S: Final = 5
TICK_S: Final = 1.0
RECALL_EVERY_S: Final = 2.0
UNHEALTHY: Final = frozenset({"unreachable", "failed"})


class Feed(Protocol):
    """Where observations come from. Both calls are made from the event loop's thread, in this order."""

    def start(self, post: Callable[[Observation], None]) -> None:
        """Begin to call `post`, from any thread, until `stop` has returned. `post` waits until it is done."""
        ...

    def stop(self) -> None:
        """Stop calling `post`; blocks until that is sure."""
        ...


def create_app(board: Board, feed: Feed, address: Address, hang_up: HangUp, back: Back) -> Starlette:
    """The application for a console that browsers reach at `address`."""
    app = Starlette(
        routes=[
            *(Route(path, _page(name, back.session)) for path, name in PAGES.items()),
            Route("/events", _Events(board, hang_up)),
            Route("/api/stats", _json(board.stats)),
            Route("/api/alerts", _json(lambda: {"alerts": board.alerts()})),
            *Api(board, back).routes(),
            *EventApi(back.event_desk, back.session).routes(),
            Route("/health", _health(board)),
            Mount("/static", _Static(directory=STATIC_DIR)),
            Mount("/vendor/plotly", _Static(directory=plotly_dir())),
        ],
        middleware=[Middleware(LoopbackOnly, address=address, session=back.session)],
        exception_handlers={404: _not_found, 500: _failed},
        lifespan=lambda _: _running(board, feed, back),
    )
    app.router.redirect_slashes = False
    return app


@contextlib.asynccontextmanager
async def _running(board: Board, feed: Feed, back: Back) -> AsyncIterator[None]:
    loop = asyncio.get_running_loop()

    def post(observation: Observation) -> None:
        asyncio.run_coroutine_threadsafe(_apply(board, observation), loop).result()

    feed.start(post)
    recalling = asyncio.create_task(_recall(board, back))
    ticking = asyncio.create_task(_tick(board))
    try:
        yield
    finally:
        board.viewers.close()
        back.catalog.close()
        await asyncio.to_thread(feed.stop)
        if back.event_desk is not None:
            await asyncio.to_thread(back.event_desk.close)
        for task in (recalling, ticking):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def _apply(board: Board, observation: Observation) -> None:
    board.apply(observation)


async def _recall(board: Board, back: Back) -> None:
    """Let the sliders stand where they were left, as soon as the broker tells."""
    while True:
        for name, value in (await asyncio.to_thread(back.actions.recall, back.catalog)).items():
            board.apply(ControlMoved(name=name, value=value))
        if back.actions.is_recalled:
            return
        await asyncio.sleep(RECALL_EVERY_S)


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


def _page(name: str, session: Session) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        token = request.query_params.get("token")
        if token is None:
            return HTMLResponse(page(name), headers={"Cache-Control": "no-cache"})
        if not session.is_token(token):
            return PlainTextResponse(
                "That token is of another console, or of another start of this one: open the address that "
                "it printed when it started.\n",
                status_code=403,
            )
        # The token leaves the address bar, and with it the browser's history.
        response = RedirectResponse(request.url.path, status_code=303, headers={"Cache-Control": "no-store"})
        session.give_to(response)
        return response

    return endpoint


def _json(answer: Callable[[], object]) -> Endpoint:
    async def endpoint(_: Request) -> Response:
        return json_response(answer())

    return endpoint


def _health(board: Board) -> Endpoint:
    async def endpoint(_: Request) -> Response:
        status = board.status()
        return json_response(
            {"status": status.kind, "words": status.words}, 503 if status.kind in UNHEALTHY else 200
        )

    return endpoint


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
