"""The part of the API that asks the broker, and the part that acts. Questions are asked on threads.

Questions wait for each other, QUESTION_COUNT_MAX at a time. What acts waits for none of them, and has threads
of its own: a driver must be killed and a slider moved also while the broker is slow. A topic is counted once
at a time, since that may take a minute.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headrace.console.board import json_text
from headrace.console.observations import ButtonPressed, ControlMoved, DriverKilled
from headrace.console.recount import recount
from headrace.console.view import is_number
from headrace.errors import BrokerUnavailable, ConfigError

if TYPE_CHECKING:
    from headrace.console.actions import Actions
    from headrace.console.board import Board
    from headrace.console.catalog import KafkaCatalog
    from headrace.console.event_api import EventDesk
    from headrace.console.security import Session

T = TypeVar("T")
Endpoint = Callable[[Request], Awaitable[Response]]
Answer = Callable[[Request], Awaitable[object]]

BODY_BYTES_MAX: Final = 1024
QUESTION_COUNT_MAX: Final = 4
"""So many questions are on their way to the broker at once; others wait for their turn."""
MESSAGE_COUNT: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Back:
    """What the pages need beside the board: who may act, how to act, and what the broker has."""

    session: Session
    actions: Actions
    catalog: KafkaCatalog
    alerts_topic: str
    event_desk: EventDesk | None = None
    """An event store, where the console was given one."""


class Api:
    """The endpoints; what they do is said at the top of app.py."""

    def __init__(self, board: Board, back: Back) -> None:
        self._board = board
        self._back = back
        self._slots = asyncio.Semaphore(QUESTION_COUNT_MAX)
        self._is_recounting = False

    def routes(self) -> list[Route]:
        """All of them."""
        return [
            Route("/api/session", _endpoint(self._session)),
            Route("/api/topics", _endpoint(self._topics)),
            Route("/api/topics/{name}", _endpoint(self._topic)),
            Route("/api/topics/{name}/messages", _endpoint(self._messages)),
            Route("/api/groups", _endpoint(self._groups)),
            Route("/api/stores", _endpoint(self._stores)),
            Route("/api/recount", _endpoint(self._recount)),
            Route("/api/pipelines/{name}/kill", _endpoint(self._kill), methods=["POST"]),
            Route("/api/controls/{name}", _endpoint(self._move), methods=["POST"]),
            Route("/api/buttons/{name}", _endpoint(self._press), methods=["POST"]),
        ]

    async def _session(self, request: Request) -> object:
        return {"may_act": self._back.session.is_held_by(request.headers)}

    async def _topics(self, _: Request) -> object:
        return {"topics": await self._ask(self._back.catalog.topics)}

    async def _topic(self, request: Request) -> object:
        return await self._ask(lambda: self._back.catalog.topic(request.path_params["name"]))

    async def _groups(self, _: Request) -> object:
        return {"groups": await self._ask(self._back.catalog.groups)}

    async def _stores(self, request: Request) -> object:
        return self._board.stores(with_keys=self._back.session.is_held_by(request.headers))

    async def _messages(self, request: Request) -> object:
        self._check_holder(request)
        name = request.path_params["name"]
        return {"messages": await self._ask(lambda: self._back.catalog.messages(name, MESSAGE_COUNT))}

    async def _recount(self, request: Request) -> object:
        self._check_holder(request)
        if self._is_recounting:
            raise _Busy("the topic is being counted already, for this page or another: wait for that to end")
        self._is_recounting = True
        try:
            return await run_in_threadpool(recount, self._back.catalog, self._back.alerts_topic)
        finally:
            self._is_recounting = False

    async def _kill(self, request: Request) -> object:
        pid = await run_in_threadpool(self._back.actions.kill, request.path_params["name"])
        self._board.apply(DriverKilled(pid=pid))
        return {"pid": pid}

    async def _move(self, request: Request) -> object:
        name, value = request.path_params["name"], await _value_in(request)
        await run_in_threadpool(self._back.actions.move, name, value)
        self._board.apply(ControlMoved(name=name, value=value))
        return {"name": name, "value": value}

    async def _press(self, request: Request) -> object:
        name, pressed_ms = request.path_params["name"], self._board.now_ms()
        await run_in_threadpool(self._back.actions.press, name, pressed_ms)
        self._board.apply(ButtonPressed(name=name, pressed_ms=pressed_ms))
        return {"name": name, "pressed_ms": pressed_ms}

    def _check_holder(self, request: Request) -> None:
        if not self._back.session.is_held_by(request.headers):
            raise _Refused("only whoever started the console may read records: open the address it printed")

    async def _ask(self, question: Callable[[], T]) -> T:
        async with self._slots:
            return await asyncio.to_thread(question)


class _Busy(Exception):
    """What is asked for is under way, and is done once at a time."""


class _Refused(Exception):
    """Whoever asks was not given the token."""


def _endpoint(answer: Answer) -> Endpoint:
    """Answers as JSON; what went wrong is said in a sentence, with the status that fits."""

    async def endpoint(request: Request) -> Response:
        try:
            return json_response(await answer(request))
        except _Refused as error:
            return json_response({"error": str(error)}, 403)
        except _Busy as error:
            return json_response({"error": str(error)}, 409)
        except ConfigError as error:
            return json_response({"error": str(error)}, 404 if request.method == "GET" else 409)
        except BrokerUnavailable as error:
            return json_response({"error": str(error)}, 503)

    return endpoint


async def _value_in(request: Request) -> float:
    """The number in a body such as {"value": 500}."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY_BYTES_MAX:
            raise ConfigError(f"the request has more than {BODY_BYTES_MAX} bytes")
    try:
        value = json.loads(body)["value"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ConfigError('the request must be JSON such as {"value": 500}') from error
    if not is_number(value):
        raise ConfigError(f"{value!r:.50} is not a number that a slider can have")
    return value


def json_response(value: object, status_code: int = 200) -> Response:
    """An answer that is never kept."""
    return Response(
        json_text(value),
        status_code=status_code,
        media_type="application/json",
        headers={"Cache-Control": "no-store"},
    )
