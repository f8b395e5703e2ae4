"""The part of the API that is about an event store. What is in it may be personal: all of it needs the token.

GET  /api/event-store                               whether there is one, its deciders and their commands
GET  /api/event-store/streams?category=account      streams by name
GET  /api/event-store/streams/NAME                  the newest events of a stream
GET  /api/event-store/streams/NAME/state?version=7  its state after so many events, and what made each field
POST /api/event-store/streams/NAME/commands/NAME    ask for something; 409 with the reason where it is refused
POST /api/event-store/replay                        {"projection": "balances"}: build a read model anew
POST /api/event-store/compare                       {"left": "Account", "right": "AccountBefore"}
GET  /api/event-store/job                           how far that is, and what came out
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headrace.console.api import Endpoint, json_response
from headrace.console.event_job import Busy
from headrace.console.security import Session
from headrace.errors import FaultError, UsageError

BODY_BYTES_MAX: Final = 64 * 1024
NAME_LENGTH_MAX: Final = 500
NO_STORE: Final = (
    "This console was given no event store: start it with --events FILE, a Python file with deciders, "
    "and name the database in HEADRACE_POSTGRES."
)

Answer = Callable[[Request], Any]


class EventDesk(Protocol):
    """What the page may ask of an event store. Called from several threads."""

    def describe(self) -> Mapping[str, Any]:
        """Deciders, commands and read models."""
        ...

    def streams(self, category: str) -> Mapping[str, Any]:
        """Streams by name."""
        ...

    def stream(self, name: str) -> Mapping[str, Any]:
        """The newest events of a stream."""
        ...

    def state(self, name: str, version: int) -> Mapping[str, Any]:
        """The state after so many events."""
        ...

    def execute(self, name: str, command: str, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """Have a command decided."""
        ...

    def replay(self, projection: str) -> Mapping[str, Any]:
        """Begin to build a read model anew."""
        ...

    def compare(self, left: str, right: str) -> Mapping[str, Any]:
        """Begin to run two deciders over the same history."""
        ...

    def job(self) -> Mapping[str, Any]:
        """How far the last of these is."""
        ...

    def close(self) -> None:
        """End what is under way."""
        ...


class EventApi:
    """The endpoints. Each waits for the database on a thread."""

    def __init__(self, desk: EventDesk | None, session: Session) -> None:
        self._desk = desk
        self._session = session

    def routes(self) -> list[Route]:
        """All of them."""
        under = "/api/event-store"
        return [
            Route(under, self._describe),
            Route(f"{under}/streams", self._endpoint(self._streams)),
            Route(f"{under}/streams/{{name}}", self._endpoint(self._stream)),
            Route(f"{under}/streams/{{name}}/state", self._endpoint(self._state)),
            Route(
                f"{under}/streams/{{name}}/commands/{{command}}",
                self._endpoint(self._execute),
                methods=["POST"],
            ),
            Route(f"{under}/replay", self._endpoint(self._replay), methods=["POST"]),
            Route(f"{under}/compare", self._endpoint(self._compare), methods=["POST"]),
            Route(f"{under}/job", self._endpoint(lambda desk, *_: desk.job())),
        ]

    async def _describe(self, _: Request) -> Response:
        """Names of types are not personal: whoever sees the page sees what it is about."""
        if self._desk is None:
            return json_response({"is_there": False, "words": NO_STORE, "deciders": [], "projections": []})
        described = await run_in_threadpool(self._desk.describe)
        return json_response({"is_there": True, "words": "", **described})

    def _endpoint(self, answer: Callable[[EventDesk, Request, Any], object]) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            if not self._session.is_held_by(request.headers):
                return _error(
                    "only whoever started the console may see events: open the address it printed", 403
                )
            if self._desk is None:
                return _error(NO_STORE, 404)
            try:
                body = await _fields_in(request) if request.method == "POST" else {}
                return json_response(await run_in_threadpool(answer, self._desk, request, body))
            except Busy as error:
                return _error(str(error), 409)
            except UsageError as error:
                return _error(str(error), 404 if request.method == "GET" else 409)
            except FaultError as error:
                return _error(str(error), 503)

        return endpoint

    @staticmethod
    def _streams(desk: EventDesk, request: Request, _: object) -> object:
        return desk.streams(request.query_params.get("category", "")[:NAME_LENGTH_MAX])

    @staticmethod
    def _stream(desk: EventDesk, request: Request, _: object) -> object:
        return desk.stream(_name(request))

    @staticmethod
    def _state(desk: EventDesk, request: Request, _: object) -> object:
        version = request.query_params.get("version", "")
        if not (version.isascii() and version.isdecimal() and len(version) < 19):
            raise UsageError("version must be a whole number: how many events of the stream to take")
        return desk.state(_name(request), int(version))

    @staticmethod
    def _execute(desk: EventDesk, request: Request, body: Mapping[str, Any]) -> object:
        return desk.execute(_name(request), request.path_params["command"][:NAME_LENGTH_MAX], body)

    @staticmethod
    def _replay(desk: EventDesk, _: Request, body: Mapping[str, Any]) -> object:
        return desk.replay(_text(body, "projection"))

    @staticmethod
    def _compare(desk: EventDesk, _: Request, body: Mapping[str, Any]) -> object:
        return desk.compare(_text(body, "left"), _text(body, "right"))


def _name(request: Request) -> str:
    return str(request.path_params["name"])[:NAME_LENGTH_MAX]


def _text(body: Mapping[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str):
        raise UsageError(f"the request must be JSON with a text named {name}")
    return value[:NAME_LENGTH_MAX]


async def _fields_in(request: Request) -> Mapping[str, Any]:
    """The JSON object in a body."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY_BYTES_MAX:
            raise UsageError(f"the request has more than {BODY_BYTES_MAX} bytes")
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise UsageError("the request is not JSON") from error
    if not isinstance(fields, dict):
        raise UsageError("the request must be a JSON object")
    return fields


def _error(text: str, status_code: int) -> Response:
    return json_response({"error": text}, status_code)
