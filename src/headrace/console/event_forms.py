"""Commands as forms: which fields a page asks for, and a command from what was filled in."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import inspect as types

from headrace.errors import EventsError

KINDS: Final = {
    types.IntType: "integer",
    types.FloatType: "number",
    types.BoolType: "flag",
    types.DateTimeType: "moment",
    types.StrType: "text",
}
"""How a field of a type is asked for; all others are asked for as JSON."""


def form_of(command: type) -> dict[str, Any]:
    """What a page needs to ask for a command."""
    info = types.type_info(command)
    fields = info.fields if isinstance(info, types.StructType | types.DataclassType) else ()
    return {
        "name": command.__name__,
        "doc": _first_line(command),
        "fields": [_field(each) for each in fields],
    }


def command_of(command: type, fields: Mapping[str, Any]) -> Any:
    """The command that was filled in. Raises EventsError that names the field that can't be."""
    try:
        return msgspec.convert(dict(fields), command)
    except msgspec.ValidationError as error:
        raise EventsError(f"{command.__name__} can't be made of that: {error}") from error


def _field(field: types.Field) -> dict[str, Any]:
    kind = _kind(field.type)
    return {
        "name": field.name,
        "kind": kind,
        "is_needed": field.required,
        "hint": "as JSON" if kind == "json" else "",
    }


def _kind(type_: types.Type) -> str:
    if isinstance(type_, types.UnionType):
        choices = [each for each in type_.types if not isinstance(each, types.NoneType)]
        return _kind(choices[0]) if len(choices) == 1 else "json"
    return KINDS.get(type(type_), "json")


def _first_line(command: type) -> str:
    """Of what its author says of it; dataclasses make up a text of their own where nothing is said."""
    text = inspect.getdoc(command) or ""
    return "" if text.startswith(f"{command.__name__}(") else text.partition("\n")[0]
