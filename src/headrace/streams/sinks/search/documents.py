"""From a row's JSON to a document of tantivy: a value, or several, for each field. No I/O.

Nulls have no value, and neither have numbers that are none. Tantivy knows moments from 1677 to 2262: those
beyond are found as the first and the last of these.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from math import isfinite
from types import MappingProxyType
from typing import Any, Final

from headrace.search.fields import KEY, PART, ROW, Column, Columns, Kind, part_of

FIRST_MOMENT: Final = datetime(1677, 9, 22)  # noqa: DTZ001 - tantivy takes moments of UTC without saying so
LAST_MOMENT: Final = datetime(2262, 4, 11)  # noqa: DTZ001 - the same
_INTEGERS: Final = range(-(2**63), 2**64)
"""Those that tantivy takes within JSON."""


def document(columns: Columns, key: str, row: str) -> dict[str, Any]:
    """The document of a row; `key` is the text of its key."""
    values = json.loads(row)
    found: dict[str, Any] = {KEY: key, ROW: row.encode(), PART: part_of(key)}
    for column in columns.searched:
        if fitting := _values(column, values[column.name]):
            found[column.name] = fitting
    return found


def _values(column: Column, value: Any) -> list[Any]:
    """What the column's field gets."""
    given = value if column.is_many and value is not None else [value]
    return list(_fitting(column.kind, (each for each in given if each is not None)))


def _fitting(kind: Kind, values: Iterable[Any]) -> Iterable[Any]:
    convert = _CONVERSIONS.get(kind)
    return values if convert is None else (made for each in values if (made := convert(each)) is not None)


def _number(value: Any) -> float | None:
    """Spark writes numbers that are none as text."""
    number = float(value)
    return number if isfinite(number) else None


def _moment(text: str) -> datetime | None:
    """A date or a moment, without its zone in UTC."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return LAST_MOMENT if text.startswith("+") else FIRST_MOMENT
    if moment.tzinfo is not None:
        moment = moment.astimezone(UTC).replace(tzinfo=None)
    return min(max(moment, FIRST_MOMENT), LAST_MOMENT)


def _object(value: Any) -> dict[str, Any] | None:
    """What is found by paths; a variant may be something else."""
    return _plain(value) if isinstance(value, dict) else None


def _plain(value: Any) -> Any:
    """The value with numbers that tantivy takes."""
    match value:
        case dict():
            return {name: _plain(each) for name, each in value.items() if each is not None}
        case list():
            return [_plain(each) for each in value if each is not None]
        case int() if value not in _INTEGERS:
            return float(value)
    return value


_CONVERSIONS: Final[Mapping[Kind, Callable[[Any], Any]]] = MappingProxyType(
    {"float": _number, "moment": _moment, "json": _object}
)
