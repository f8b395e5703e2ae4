"""What is compared of the answers of Nexmark, whoever has given them, and in whatever order."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

Row = dict[str, Any]
_OURS_ONLY: Final = {"firing", "removed", "channel_day"}
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?Z?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What tells two sets of rows apart, whatever their order."""

    count: int
    digest: int


def answer_of(rows: Iterable[Row]) -> Answer:
    """What is looked at of rows."""
    count = digest = 0
    for row in rows:
        text = json.dumps(_plain(row), sort_keys=True)
        digest += int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16).digest())
        count += 1
    return Answer(count=count, digest=digest)


def _plain(row: Row) -> Row:
    """A row in which nothing is left of how its writer puts times and windows."""
    flat = {**{name: value for name, value in row.items() if name != "window"}, **row.get("window", {})}
    return {name: _timed(value) for name, value in flat.items() if name not in _OURS_ONLY}


def _timed(value: Any) -> Any:
    if not isinstance(value, str) or not _TIME.fullmatch(value):
        return value
    time, _, fraction = value.removesuffix("Z").partition(".")
    return f"{time if time.count(':') == 2 else time + ':00'}.{fraction:0<6}"


def check(name: str, found: Answer, wanted: Answer) -> None:
    """Exit where the answer is wrong."""
    if found != wanted:
        why = "" if found.count != wanted.count else ", and they are others"
        sys.exit(f"{name}: {found.count:,} rows, not {wanted.count:,}{why}")
