"""A dataclass as Spark's DDL, without Spark.

    @dataclass
    class Order:
        id: str                                    `id` string not null
        amount: Annotated[Decimal, "decimal(10,2)"]    `amount` decimal(10,2) not null
        at: datetime | None = None                 `at` timestamp
        lines: list[Line] = field(...)             refused: Spark would never call it

A field is a column of its name. One that may be None is a column that may be null; every other is required.
Spark fills a column that a record does not have with null and knows no other default, so a field with one is
refused rather than ignored. `Annotated` names another type in Spark's words where Python has only one.

What an operator keeps by key is described in the same way; there a field needs a default, because each key
begins with it.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any, Final, Union, get_args, get_origin, get_type_hints

from headrace.errors import ConfigError

_SCALARS: Final[Mapping[Any, str]] = {
    str: "string",
    int: "bigint",
    float: "double",
    bool: "boolean",
    bytes: "binary",
    datetime: "timestamp",
    date: "date",
    Decimal: "decimal(38,18)",
}


def schema_ddl(schema: str | type, *, with_defaults: bool = False) -> str:
    """The schema as DDL: as it is, or from a dataclass, whose fields have defaults or must have none."""
    if isinstance(schema, str):
        return schema
    if not dataclasses.is_dataclass(schema) or not isinstance(schema, type):
        raise ConfigError(
            f"schema is {schema!r}: write Spark's DDL, such as 'id string', or name a dataclass"
        )
    return ", ".join(_columns(schema, separator=" ", outer=(), with_defaults=with_defaults))


def state_defaults(schema: type) -> dict[str, Any]:
    """The defaults of a dataclass's fields, by name."""
    defaults = {}
    for field in dataclasses.fields(schema):
        if field.default is not dataclasses.MISSING:
            defaults[field.name] = field.default
        elif field.default_factory is not dataclasses.MISSING:
            defaults[field.name] = field.default_factory()
        else:
            raise ConfigError(
                f"{schema.__name__}.{field.name} has no default, and a new key has to begin with something: "
                "write `= 0`, or `| None = None`"
            )
    return defaults


def _columns(
    schema: type, *, separator: str, outer: tuple[type, ...], with_defaults: bool = False
) -> list[str]:
    """A column for each field. `outer` are the classes that hold this one, which it can't hold in turn."""
    if schema in outer:
        raise ConfigError(f"{schema.__name__} holds itself: a row has an end; leave the field out")
    if not dataclasses.fields(schema):
        raise ConfigError(f"{schema.__name__} has no fields: a row has at least one column")
    hints = get_type_hints(schema, include_extras=True)
    columns = []
    for field in dataclasses.fields(schema):
        place = f"{schema.__name__}.{field.name}"
        kind, is_optional = _without_none(hints[field.name])
        if not with_defaults:
            _refuse_default(field, place)
        required = "" if is_optional else " not null"
        columns.append(f"`{field.name}`{separator}{_ddl(kind, place, (*outer, schema))}{required}")
    return columns


def _ddl(kind: Any, place: str, outer: tuple[type, ...]) -> str:
    if get_origin(kind) is Annotated:
        named = [note for note in kind.__metadata__ if isinstance(note, str)]
        return named[0] if named else _ddl(kind.__origin__, place, outer)
    if kind in _SCALARS:
        return _SCALARS[kind]
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return f"struct<{', '.join(_columns(kind, separator=': ', outer=outer))}>"
    members = [_without_none(member)[0] for member in get_args(kind)]
    if get_origin(kind) is list:
        return f"array<{_ddl(members[0], place, outer)}>"
    if get_origin(kind) is dict and members[0] is str:
        return f"map<string, {_ddl(members[1], place, outer)}>"
    raise ConfigError(
        f"{place} is {kind!r}, which is no column: use str, int, float, bool, bytes, Decimal, datetime, "
        'date, list[...], dict[str, ...], another dataclass, or Annotated[..., "a type of Spark"]'
    )


def _without_none(kind: Any) -> tuple[Any, bool]:
    """The type, and whether it may be None as well."""
    if get_origin(kind) not in {Union, types.UnionType}:
        return kind, False
    members = [member for member in get_args(kind) if member is not types.NoneType]
    return (members[0], True) if len(members) == 1 else (kind, False)


def _refuse_default(field: dataclasses.Field[Any], place: str) -> None:
    has_default = field.default not in {dataclasses.MISSING, None}
    if has_default or field.default_factory is not dataclasses.MISSING:
        raise ConfigError(
            f"{place} has a default, which a record that lacks the field would not get: make it `| None = "
            "None`, and fill it in the pipeline with F.coalesce"
        )
