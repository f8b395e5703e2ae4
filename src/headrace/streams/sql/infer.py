"""The columns of a topic that nobody has described, by a sample of its records.

| in JSON | column |
|---|---|
| true, false | boolean |
| whole numbers | bigint; decimal(38,0) where one is too large |
| other numbers | double |
| text | string; timestamp where each is a moment as ISO 8601 has it, with its zone |
| lists, objects | array, struct; an object that is always empty, map<string, string> |
| null, or nothing | whatever the other records have; string where none has anything |

Where records differ, numbers become double and all else text. No column is required.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

from headrace.streams.sql.tokens import name_text
from headrace.streams.topic import Format

_MOMENT: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)")
_BIGINT: Final = range(-(2**63), 2**63)
_DECIMAL_MAX: Final = 10**38
_NUMBERS: Final = ("bigint", "decimal(38,0)", "double")

Kind = str | None | tuple["Kind"] | Mapping[str, "Kind"]
"""A type: its name, None for nothing known, a list's in a tuple, or an object's fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inferred:
    """What records seem to be."""

    format: Format
    columns: str | None = None
    is_keyed: bool = False
    """Whether records without a value were among them, as in a topic by key."""


def infer(values: Sequence[bytes | None]) -> Inferred | None:
    """The format and the columns of records with these values; None if there is nothing to tell them by."""
    present = [value for value in values if value is not None]
    objects = [found for value in present if (found := _object(value))]
    if objects:
        columns = infer_columns(objects)
        return Inferred(format="json", columns=columns, is_keyed=len(present) < len(values))
    if not present:
        return None
    return Inferred(format="text" if all(map(_is_text, present)) else "bytes")


def infer_columns(objects: Iterable[Mapping[str, Any]]) -> str:
    """The columns, in Spark's words, in the order in which they are first seen."""
    kind = reduce(_merged, map(_kind, objects), None)
    assert isinstance(kind, Mapping), "objects are merged into an object"
    return ", ".join(f"{name_text(name)} {_text(field)}" for name, field in kind.items())


def _object(value: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _kind(value: Any) -> Kind:
    if isinstance(value, dict):
        return {name: _kind(each) for name, each in value.items()}
    if isinstance(value, list):
        return (reduce(_merged, map(_kind, value), None),)
    return None if value is None else _plain_kind(value)


def _plain_kind(value: Any) -> str:
    if isinstance(value, str):
        return "timestamp" if _MOMENT.fullmatch(value) else "string"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, float):
        return "double"
    if value in _BIGINT:
        return "bigint"
    return "decimal(38,0)" if abs(value) < _DECIMAL_MAX else "double"


def _merged(one: Kind, other: Kind) -> Kind:
    if one is None:
        return other
    if other is None or one == other:
        # Objects with the same fields in another order are equal: the order of the first counts.
        return one
    if isinstance(one, tuple) and isinstance(other, tuple):
        return (_merged(one[0], other[0]),)
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return {name: _merged(one.get(name), other.get(name)) for name in [*one, *other]}
    if one in _NUMBERS and other in _NUMBERS:
        return str(max(one, other, key=lambda kind: _NUMBERS.index(str(kind))))
    return "string"


def _text(kind: Kind) -> str:
    if kind is None:
        return "string"
    if isinstance(kind, str):
        return kind
    if isinstance(kind, tuple):
        return f"array<{_text(kind[0])}>"
    if not kind:
        return "map<string, string>"
    return f"struct<{', '.join(f'{name_text(name)}: {_text(field)}' for name, field in kind.items())}>"
