"""Rows as a test writes them, as records hold them, and how the two differ. Pure.

A row is a mapping of columns to values. What Python has and JSON has not is compared in the form in which
pipelines write it: moments as `2026-01-02T03:04:05.000000Z`, days as `2026-01-02`, decimals as numbers.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final

Row = Mapping[str, Any]

LINES_SHOWN_MAX: Final = 20


def as_mapping(row: object) -> dict[str, Any]:
    """A row that was given as a mapping or as an instance of a dataclass."""
    if isinstance(row, Mapping):
        return dict(row)
    if dataclasses.is_dataclass(row) and not isinstance(row, type):
        return dataclasses.asdict(row)
    raise TypeError(f"{row!r} is no row: give a mapping of columns to values, or an instance of a dataclass")


def encode(row: object) -> bytes:
    """The value of a record: JSON for a row; text and bytes as they are."""
    if isinstance(row, bytes):
        return row
    if isinstance(row, str):
        return row.encode()
    return json.dumps(plain(as_mapping(row))).encode()


def plain(value: Any) -> Any:
    """The same with what JSON has, and all else (such as pytest.approx) as it is."""
    if isinstance(value, Mapping):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, datetime):
        if value.tzinfo is None:
            return value.isoformat(timespec="microseconds")
        return value.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    return float(value) if isinstance(value, Decimal) else value


def difference(expected: Iterable[object], found: Sequence[Row], *, of: str) -> str | None:
    """What is missing, unexpected or different, a line each; None if the rows are the same in any order."""
    wanted = [plain(as_mapping(row)) for row in expected]
    unexpected = list(found)
    missing: list[Row] = []
    for row in wanted:
        if row in unexpected:
            unexpected.remove(row)
        else:
            missing.append(row)
    if not missing and not unexpected:
        return None
    lines = [*_changed(missing, unexpected)]
    lines += [f"  missing     {_shown(row)}" for row in missing]
    lines += [f"  unexpected  {_shown(row)}" for row in unexpected]
    left_out = len(lines) - LINES_SHOWN_MAX
    if left_out > 0:
        lines = [*lines[:LINES_SHOWN_MAX], f"  ... and {left_out} more"]
    return "\n".join([f"{of} has other rows than expected ({len(found)} rows, not {len(wanted)}):", *lines])


def _changed(missing: list[Row], unexpected: list[Row]) -> Iterable[str]:
    """A line for each row that is there with other values; both sides are taken out of the lists."""
    for row in tuple(missing):
        alike = max(unexpected, key=lambda other: _alikeness(row, other), default=None)
        if alike is None or _alikeness(row, alike) == 0:
            continue
        missing.remove(row)
        unexpected.remove(alike)
        same = {name: value for name, value in row.items() if name in alike and value == alike[name]}
        names = [name for name in (*row, *(name for name in alike if name not in row)) if name not in same]
        told = ", ".join(_change(name, alike, row) for name in names)
        yield f"  different   {_shown(same)}: {told}"


def _alikeness(row: Row, other: Row) -> int:
    return sum(1 for name, value in row.items() if name in other and value == other[name])


def _change(name: str, found: Row, wanted: Row) -> str:
    if name not in found:
        return f"{name} is missing, not {wanted[name]!r}"
    return f"{name} is {found[name]!r}" + (f", not {wanted[name]!r}" if name in wanted else ", not missing")


def _shown(row: Row) -> str:
    return repr(dict(row))
