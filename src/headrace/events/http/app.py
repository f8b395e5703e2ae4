"""Commands in, queries out: an ASGI application over an event store.

    POST /commands/account/42/Withdraw     body: the command as JSON
         Idempotency-Key: <command id>     the same again gives the first answer again
         If-Match: "3"                     only at version 3; 412 otherwise. If-None-Match: * for a new stream
    GET  /streams/account-42               state, version as ETag; ?as_of=TIME, ?version=N or ?position=N
    GET  /streams/account-42/events        ?after=VERSION&limit=N
    GET  /queries/balance?account=...      what read models answer; ?position=N waits for them
    GET  /projections                      how far they are
    GET  /openapi.json

What can't be done is answered by application/problem+json: 409 with the reason for a command that is refused.
The application knows no users: put who may do what in front of it, and name the user by `actor_of`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headrace.errors import ConfigError, VersionConflict
from headrace.events.executing import Executed
from headrace.events.http.bodies import parse, read_body
from headrace.events.http.failures import problem_of
from headrace.events.http.hosts import OwnHostsOnly
from headrace.events.http.openapi import describe
from headrace.events.http.preconditions import etag, expected_version, is_unchanged
from headrace.events.http.problems import Problem, bad_request, not_found
from headrace.events.http.query import POSITION, Query
from headrace.events.http.reading import as_of_of, event_json, number_of, parameters_of, status_json
from headrace.events.projections.read_models import ReadModels
from headrace.events.recorded import About
from headrace.events.records import ANY
from headrace.events.store import EventStore

BODY_BYTES_MAX: Final = 64 * 1024
EVENT_COUNT_MAX: Final = 1_000
EVENT_COUNT: Final = 100
KEY_LENGTH_MAX: Final = 190
KEY_PREFIX: Final = "http/"
"""What command ids from here begin with. Those of processes can be computed from what anybody may read, so a
client could use one up first if they were in the same name space."""
WAIT_S: Final = 5.0
"""How long a query waits for its projection."""

Answer = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What may be chosen."""

    hosts: frozenset[str]
    """The Host headers that are answered, with their ports."""
    title: str = "Headrace events"
    version: str = "1"
    body_bytes_max: int = BODY_BYTES_MAX
    wait_s: float = WAIT_S

    def __post_init__(self) -> None:
        if not self.hosts:
            raise ConfigError("name the hosts that are answered, such as shop.example.org or 127.0.0.1:8000")
        if not 1 <= self.body_bytes_max <= 2**30:
            raise ConfigError(f"body_bytes_max is {self.body_bytes_max}: 1 to {2**30} bytes are possible")


def create_app(
    store: EventStore,
    settings: Settings,
    *,
    read_models: ReadModels | None = None,
    queries: Sequence[Query] = (),
    actor_of: Callable[[Request], str | None] = lambda _: None,
) -> Starlette:
    """The application: `create_app(store, Settings(hosts=loopback_hosts(8000)))`."""
    for query in queries:
        if query.projection is not None and read_models is None:
            raise ConfigError(f"query {query.name} waits for {query.projection}: give read_models")
    server = _Server(store, read_models, {query.name: query for query in queries}, actor_of, settings)
    app = Starlette(
        routes=server.routes(),
        middleware=[Middleware(OwnHostsOnly, hosts=settings.hosts)],
        exception_handlers={404: _not_found, 405: _not_allowed, 500: _failed},
    )
    app.router.redirect_slashes = False
    return app


class _Server:
    def __init__(
        self,
        store: EventStore,
        read_models: ReadModels | None,
        queries: dict[str, Query],
        actor_of: Callable[[Request], str | None],
        settings: Settings,
    ) -> None:
        self._store = store
        self._read_models = read_models
        self._queries = queries
        self._actor_of = actor_of
        self._settings = settings
        self._commands = {
            (category, command.__name__): command
            for category, decider in store.deciders.items()
            for command in decider.commands
        }
        self._description = msgspec.json.encode(
            describe(
                store.deciders.values(),
                list(queries.values()),
                title=settings.title,
                version=settings.version,
            )
        )

    def routes(self) -> list[Route]:
        return [
            Route("/commands/{category}/{id}/{command}", _told(self._execute), methods=["POST"]),
            Route("/streams/{stream}", _told(self._state)),
            Route("/streams/{stream}/events", _told(self._events)),
            Route("/queries/{name}", _told(self._query)),
            Route("/projections", _told(self._projections)),
            Route("/openapi.json", _told(self._openapi)),
        ]

    async def _execute(self, request: Request) -> Response:
        category, name = request.path_params["category"], request.path_params["command"]
        wanted = self._commands.get((category, name))
        if wanted is None:
            known = ", ".join(each for of, each in self._commands if of == category)
            raise not_found(
                f"there is no command {name[:100]!r} of {category[:100]!r}; there are {known or 'none'}"
            )
        stream = self._store.deciders[category].stream(request.path_params["id"])
        expected = expected_version(request.headers)
        key = request.headers.get("idempotency-key")
        if key is not None and not 0 < len(key) <= KEY_LENGTH_MAX:
            raise bad_request(
                f"an Idempotency-Key has 1 to {KEY_LENGTH_MAX} letters", field="Idempotency-Key"
            )
        command_id = None if key is None else f"{KEY_PREFIX}{key}"
        command = parse(await read_body(request, self._settings.body_bytes_max), wanted)
        about: About = {"actor": self._actor_of(request)}

        def execute() -> Executed:
            try:
                return self._store.execute(stream, command, command_id=command_id, expected=expected, **about)
            except VersionConflict as conflict:
                # Who named no version is not told that it was the wrong one.
                if expected == ANY:
                    raise Problem(409, "Conflict", str(conflict), headers={"Retry-After": "1"}) from conflict
                raise

        executed = await run_in_threadpool(execute)
        answer = {
            "stream": executed.stream,
            "version": executed.version,
            "position": executed.position,
            "events": [{"type": type(each).__name__, "data": each} for each in executed.events],
            "is_repeat": executed.is_repeat,
        }
        return _json(answer, ETag=etag(executed.version))

    async def _state(self, request: Request) -> Response:
        stream = request.path_params["stream"]
        moment = as_of_of(request.query_params)
        if moment:
            loaded = await run_in_threadpool(self._store.as_of, stream, **moment)
        else:
            loaded = await run_in_threadpool(self._store.load, stream)
        if loaded.version == 0:
            raise not_found(f"{stream[:100]} has no events" + (" as of then" if moment else ""))
        headers = {"ETag": etag(loaded.version), "Cache-Control": "no-cache"}
        if is_unchanged(request.headers, loaded.version):
            return Response(status_code=304, headers=headers)
        answer = {
            "stream": stream,
            "version": loaded.version,
            "type": type(loaded.state).__name__,
            "state": loaded.state,
        }
        return _json(answer, **headers)

    async def _events(self, request: Request) -> Response:
        stream = request.path_params["stream"]
        self._store.decider_of(stream)
        after = number_of(request.query_params, "after", default=0, most=2**62)
        limit = number_of(request.query_params, "limit", default=EVENT_COUNT, least=1, most=EVENT_COUNT_MAX)

        def read() -> list[dict[str, Any]]:
            return [
                event_json(each) for each in self._store.read_stream(stream, after_version=after, limit=limit)
            ]

        events = await run_in_threadpool(read)
        if not events and after == 0:
            raise not_found(f"{stream[:100]} has no events")
        return _json({"stream": stream, "events": events, "next": events[-1]["version"] if events else after})

    async def _query(self, request: Request) -> Response:
        name = request.path_params["name"]
        query = self._queries.get(name)
        if query is None:
            raise not_found(
                f"there is no query {name[:100]!r}; there are {', '.join(self._queries) or 'none'}"
            )
        position = number_of(request.query_params, POSITION, default=0, most=2**62)
        asked = parameters_of(request.query_params, query)

        def answer() -> Any:
            if position and query.projection is not None and self._read_models is not None:
                self._read_models.wait_for(query.projection, position, timeout_s=self._settings.wait_s)
            return query.answer(asked)

        found = await run_in_threadpool(answer)
        if found is None:
            raise not_found(f"{query.name} has no answer to that")
        return _json(found)

    async def _projections(self, _: Request) -> Response:
        models = self._read_models
        found = () if models is None else await run_in_threadpool(models.status)
        return _json({"projections": [status_json(each) for each in found]})

    async def _openapi(self, _: Request) -> Response:
        return Response(self._description, media_type="application/json")


def _told(answer: Answer) -> Answer:
    """Let what is wrong be told as a problem."""

    async def endpoint(request: Request) -> Response:
        try:
            return await answer(request)
        except Problem as problem:
            return problem.response()
        except Exception as error:
            problem_or_none = problem_of(error)
            if problem_or_none is None:
                raise
            return problem_or_none.response()

    return endpoint


def _json(answer: object, **headers: str) -> Response:
    return Response(
        msgspec.json.encode(answer),
        media_type="application/json",
        headers={"Cache-Control": "no-store", **headers},
    )


async def _not_found(request: Request, _: Exception) -> Response:
    return not_found(f"there is no {request.url.path[:100]} here; see /openapi.json").response()


async def _not_allowed(request: Request, _: Exception) -> Response:
    return Problem(405, "Method not allowed", f"{request.method[:20]} is not possible here").response()


async def _failed(_: Request, error: Exception) -> Response:
    # What it was is told by the server's own log, not to whoever asks.
    return Problem(500, "Internal error", f"the server has failed ({type(error).__name__})").response()
