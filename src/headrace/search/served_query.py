"""A query in the words of a search server: those of an index in a directory, with three differences. No I/O.

| written | sent | because |
|---|---|---|
| `at:>2026-01-01T00:00:00Z` | `at:>2026-01-01T00\\:00\\:00Z` | a colon ends the name of a column there |
| `* -boot` | `*:* -boot` | `*` alone finds what has a value in the columns of text |
| `colour:red` | nothing: it is refused | a column that is not there would find nothing, and say nothing |

What stands in quotes or brackets is sent as it is. A name that begins with `_` is the server's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from headrace.search.fields import Columns

_PARTS: Final = re.compile(
    r"""
    (?P<quoted> "(?:\\.|[^"\\])*"? )
  | (?P<range> [\[{][^\]}]*[\]}]? )
  | (?P<moment> \d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:\d\d)? )
  | (?P<all> (?<![^\s(+\-!]) \* (?=[\s)]|$) )
  | (?P<name> (?<![^\s(+\-!]) (?:\\.|[^\s"()\[\]{}:\\+\-!<>=&|^~*?/]) (?:\\.|[^\s"()\[\]{}:\\<>=&|^~])* ) :
    """,
    re.VERBOSE,
)


def served_query(query: str) -> str:
    """The query as it is sent."""
    return _PARTS.sub(_sent, query)


def named_columns(query: str) -> list[str]:
    """The columns that a query names, each once."""
    names = (found["name"] for found in _PARTS.finditer(query) if found["name"])
    return list(dict.fromkeys(re.sub(r"\\(.)", r"\1", name) for name in names))


def unknown_columns(names: Iterable[str], columns: Columns) -> list[str]:
    """Those of these columns, or paths into one, by which nothing could be found."""
    searched = [column.name for column in columns.searched if column.type != "variant"]
    return [
        name
        for name in names
        if not name.startswith("_")
        and not any(name == column or name.startswith(f"{column}.") for column in searched)
    ]


def _sent(found: re.Match[str]) -> str:
    if found["moment"]:
        return found[0].replace(":", r"\:")
    return "*:*" if found["all"] else found[0]
