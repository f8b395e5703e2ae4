"""What an application does with a search index, wherever that is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self

from headrace.errors import SetupError, UsageError

HITS_MAX: Final = 10_000
"""How far a search may reach, `offset` and `limit` together: OpenSearch goes no further, either."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A row that was found."""

    score: float
    """How well it fits; comparable within one search only."""
    row: dict[str, Any]
    """Its columns, as JSON has them: times are text, binary values Base64."""


class Index(Protocol):
    """An open index. Safe to share between threads."""

    def search(
        self, query: str, *, limit: int = 10, offset: int = 0, fields: Sequence[str] | None = None
    ) -> list[Hit]:
        """The best hits, as the index is now; raises UsageError for a query that can't be understood.

        `fields` are the columns in which words without a field are looked for: those of text, if nothing is
        said.
        """

    def get(self, *key: object) -> dict[str, Any] | None:
        """The row with this key, a value for each of its columns; None if there is none."""

    def count(self, query: str = "*", *, fields: Sequence[str] | None = None) -> int:
        """How many rows there are, or how many a query finds."""

    def close(self) -> None:
        """Let go of files and connections."""

    def __enter__(self) -> Self:
        """Use it in a `with` block."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""


def open_index(address: Path | str, name: str) -> Index:
    """Open an index by what `hr.search_index` was told: a directory or the URL of a server, and its name."""
    if "://" in str(address):
        _check_installed("httpx", "indexes of a server")
        from headrace.search.served import ServedIndex  # noqa: PLC0415 - what it needs is an extra

        return ServedIndex(str(address), name)
    _check_installed("tantivy", "search indexes in a directory")
    from headrace.search.embedded import EmbeddedIndex  # noqa: PLC0415 - what it needs is an extra

    return EmbeddedIndex(Path(address) / name)


def check_reach(limit: int, offset: int) -> None:
    """Raise for hits that can't be asked for."""
    if limit < 1 or offset < 0 or limit + offset > HITS_MAX:
        raise UsageError(
            f"hits {offset} to {offset + limit} can't be asked for: limit is at least 1, offset at least 0, "
            f"and both together at most {HITS_MAX:,}; narrow the query down instead"
        )


def _check_installed(module: str, told: str) -> None:
    if find_spec(module) is None:
        raise SetupError(f"{told} need {module}: pip install 'headrace[stores]'")
