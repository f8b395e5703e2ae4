"""What Spark's errors about a query mean, in a sentence with the place in the query.

Spark tells places as `(line 1, pos 9)` or `; line 1 pos 7;`, with positions that begin at 0.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import Final

from headrace.streams.failure import first_line

NEAR_NAMES_MAX: Final = 3
_PLACE: Final = re.compile(r"[;(]?\s*\(?line (\d+),? pos (\d+)\)?;?")
_STATE: Final = re.compile(r"\s*SQLSTATE: \w+")
_PARTS: Final = re.compile(r"`((?:[^`]|``)*)`")
_ADVICE: Final = (
    # What a stream can't do, by what Spark says of it, and who can.
    ("NON_TIME_WINDOW_NOT_SUPPORTED", "use hr.match, hr.top or hr.keyed in Python"),
    ("Sorting is not supported", "leave ORDER BY out, and order what you query; hr.top keeps the first ones"),
    ("imits are not supported", "leave LIMIT out, and limit what you query; hr.top keeps the first ones"),
    ("STREAMING_OUTPUT_MODE", "use hr.window, hr.keyed or hr.aggregate in Python"),
)


def sentence(error: BaseException | str) -> str:
    """What is wrong, and where."""
    text = str(error).strip()
    # `first_line` takes a state off only at the end of the line, where these have their place.
    told = first_line(_STATE.sub("", text.splitlines()[0] if text else ""))
    found = _PLACE.search(text)
    told = _PLACE.sub("", told).strip(" ;.")
    if found is None:
        return told
    return f"line {found[1]}, column {int(found[2]) + 1}: {told}"


def streaming_sentence(error: BaseException | str) -> str:
    """The same of a query that can't run as a stream, and what can be done instead."""
    text = str(error)
    advice = next((told for part, told in _ADVICE if part in text), None)
    return sentence(error) + (f"; {advice}" if advice else "")


def name_of(relation: str) -> str:
    """A table's name from how Spark writes it: several parts that were joined by dots are one."""
    return ".".join(part.replace("``", "`") for part in _PARTS.findall(relation)) or relation


def is_in_parts(relation: str) -> bool:
    """Whether the name was written as several parts."""
    return len(_PARTS.findall(relation)) > 1


def near(name: str, known: list[str]) -> list[str]:
    """Names that are like it."""
    lower = {each.lower(): each for each in known}
    return [lower[each] for each in get_close_matches(name.lower(), list(lower), n=NEAR_NAMES_MAX)]
