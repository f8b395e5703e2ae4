"""Describes the server by OpenAPI 3.1, from the classes of commands, events, states and queries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from headrace.events.decider import Decider
from headrace.events.http.problems import PROBLEM_JSON
from headrace.events.http.query import POSITION, Query

_REFERENCE: Final = "#/components/schemas/{name}"
_PROBLEM: Final = {
    "type": "object",
    "required": ["title", "status", "detail"],
    "properties": {
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "What is wrong, or why the command was refused."},
        "field": {"type": "string", "description": "The field that is wrong."},
    },
}
_COMMAND_PROBLEMS: Final = {
    "400": "The command can't be understood; `field` says where.",
    "404": "There is no such category or command.",
    "409": "The command is refused, or others changed the stream too often meanwhile.",
    "412": "The stream has another version than `If-Match` says.",
    "413": "The body is too large.",
    "415": "The body is not declared as JSON.",
    "422": "The Idempotency-Key was used for another command.",
    "503": "The store does not answer for now.",
}
_EXECUTED: Final = {
    "type": "object",
    "required": ["stream", "version", "position", "events", "is_repeat"],
    "properties": {
        "stream": {"type": "string"},
        "version": {"type": "integer"},
        "position": {"type": "integer", "description": "What a query has to wait for to see it."},
        "events": {"type": "array", "items": {"type": "object"}},
        "is_repeat": {"type": "boolean"},
    },
}


def describe(
    deciders: Iterable[Decider], queries: Sequence[Query], *, title: str, version: str
) -> dict[str, Any]:
    """The description, ready to be written as JSON."""
    deciders = list(deciders)
    types = [*(command for decider in deciders for command in decider.commands)]
    states = {decider.category: list(decider.states) for decider in deciders}
    asked = [each for query in queries for each in (query.asked, query.answered)]
    wanted = [*types, *(state for each in states.values() for state in each), *asked]
    found, components = msgspec.json.schema_components(wanted, ref_template=_REFERENCE)
    schema_of = dict(zip(map(id, wanted), found, strict=True))
    paths: dict[str, Any] = {}
    for decider in deciders:
        for command in decider.commands:
            path = f"/commands/{decider.category}/{{id}}/{command.__name__}"
            paths[path] = {"post": _command(decider, command, schema_of[id(command)])}
        state = [schema_of[id(each)] for each in states[decider.category]]
        paths[f"/streams/{decider.category}-{{id}}"] = {"get": _state(decider, state)}
        paths[f"/streams/{decider.category}-{{id}}/events"] = {"get": _events(decider)}
    for query in queries:
        paths[f"/queries/{query.name}"] = {
            "get": _query(query, components, schema_of[id(query.asked)], schema_of[id(query.answered)])
        }
    paths["/projections"] = {
        "get": {
            "operationId": "projections",
            "summary": "How the read models are",
            "responses": {"200": _json({})},
        }
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version},
        "paths": paths,
        "components": {"schemas": {**components, "Problem": _PROBLEM, "Executed": _EXECUTED}},
    }


def _command(decider: Decider, command: type, schema: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "operationId": f"{decider.category}.{command.__name__}",
        "summary": f"{command.__name__} for one {decider.category}",
        "parameters": [
            _parameter("id", "path", "Which one.", required=True),
            _parameter("Idempotency-Key", "header", "The same key again gives the first answer again."),
            _parameter("If-Match", "header", "The ETag of the version that is expected."),
            _parameter("If-None-Match", "header", "`*`: there is no such stream yet."),
        ],
        "requestBody": {"required": True, "content": {"application/json": {"schema": schema}}},
        "responses": {
            "200": _json({"$ref": "#/components/schemas/Executed"}),
            **{status: _problem(told) for status, told in _COMMAND_PROBLEMS.items()},
        },
    }


def _state(decider: Decider, states: list[Any]) -> dict[str, Any]:
    schema = {
        "type": "object",
        "required": ["stream", "version", "type", "state"],
        "properties": {
            "stream": {"type": "string"},
            "version": {"type": "integer"},
            "type": {"type": "string", "description": "The class of the state."},
            "state": {"anyOf": states},
        },
    }
    return {
        "operationId": f"{decider.category}.state",
        "summary": f"The state of one {decider.category}, now or in the past",
        "parameters": [
            _parameter("id", "path", "Which one.", required=True),
            _parameter(
                "as_of", "query", "A time with its zone.", schema={"type": "string", "format": "date-time"}
            ),
            _parameter("version", "query", "A version of the stream.", schema={"type": "integer"}),
            _parameter("position", "query", "A position of the log.", schema={"type": "integer"}),
            _parameter("If-None-Match", "header", "The ETag of what is known already."),
        ],
        "responses": {
            "200": _json(schema),
            "304": {"description": "It is as it was."},
            "400": _problem("What is asked can't be understood."),
            "404": _problem("There was no such stream then."),
        },
    }


def _events(decider: Decider) -> dict[str, Any]:
    return {
        "operationId": f"{decider.category}.events",
        "summary": f"The events of one {decider.category}",
        "parameters": [
            _parameter("id", "path", "Which one.", required=True),
            _parameter("after", "query", "A version; events after it are given.", schema={"type": "integer"}),
            _parameter("limit", "query", "How many at most.", schema={"type": "integer"}),
        ],
        "responses": {"200": _json({"type": "object"}), "404": _problem("There is no such stream.")},
    }


def _query(query: Query, components: Mapping[str, Any], asked: Any, answered: Any) -> dict[str, Any]:
    described = components[asked["$ref"].rpartition("/")[2]]
    required = described.get("required", ())
    parameters = [
        _parameter(name, "query", "", required=name in required, schema=schema)
        for name, schema in described["properties"].items()
    ]
    if query.projection is not None:
        told = f"Answer once {query.projection} has seen the log so far."
        parameters.append(_parameter(POSITION, "query", told, schema={"type": "integer"}))
    return {
        "operationId": query.name,
        "parameters": parameters,
        "responses": {
            "200": _json(answered),
            "400": _problem("What is asked can't be understood."),
            "404": _problem("There is no such thing."),
            "503": _problem("The read model has not come so far yet."),
        },
    }


def _parameter(
    name: str, place: str, description: str, *, required: bool = False, schema: Any = None
) -> dict[str, Any]:
    described = {"name": name, "in": place, "required": required, "schema": schema or {"type": "string"}}
    return {**described, "description": description} if description else described


def _json(schema: Any) -> dict[str, Any]:
    return {"description": "The answer.", "content": {"application/json": {"schema": schema}}}


def _problem(description: str) -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/Problem"}
    return {"description": description, "content": {PROBLEM_JSON: {"schema": schema}}}
