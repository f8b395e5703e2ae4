"""An index in a directory, read in this process (see layout.py for what is where)."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import tantivy

from headrace.errors import StorageError, UsageError
from headrace.search import layout
from headrace.search.fields import ALL_LEDGERS, KEY, LEDGER, PART, PARTS, ROW, Columns
from headrace.search.index import Hit, check_reach
from headrace.search.keys import key_text

OPEN_ATTEMPTS_MAX: Final = 5
"""How often to look again where a generation is replaced while it is opened."""
_META: Final = "meta.json"
"""Tantivy's own file: what the last commit has left."""


@dataclass(slots=True, kw_only=True)
class Generation:
    """A generation that is open for reading."""

    path: Path
    columns: Columns
    index: tantivy.Index
    seen: tuple[int, int]
    """Which commit the searcher shows."""

    @classmethod
    def open(cls, path: Path) -> Generation:
        """Open it as it is now."""
        columns = Columns.from_json((path / layout.COLUMNS).read_text())
        seen = _commit_of(path)
        index = tantivy.Index.open(str(path))
        # It is asked for when something is looked for; a thread that watches the directory is not needed.
        index.config_reader("manual")
        index.reload()
        return cls(path=path, columns=columns, index=index, seen=seen)

    def refresh(self) -> None:
        """Let the next searcher show the last commit."""
        now = _commit_of(self.path)
        if now != self.seen:
            self.index.reload()
            self.seen = now

    def rows(self, query: tantivy.Query) -> tantivy.Query:
        """What the query finds and is a row."""
        ledgers = tantivy.Query.term_query(self.index.schema, LEDGER, ALL_LEDGERS)
        return tantivy.Query.boolean_query([(tantivy.Occur.Must, query), (tantivy.Occur.MustNot, ledgers)])


class EmbeddedIndex:
    """See Index."""

    def __init__(self, path: Path) -> None:
        """The directory of the index, which need not be there yet; or one generation of it."""
        self._path = path.absolute()
        self._lock = threading.Lock()
        self._open: Generation | None = None

    def search(
        self, query: str, *, limit: int = 10, offset: int = 0, fields: Sequence[str] | None = None
    ) -> list[Hit]:
        """The best hits."""
        check_reach(limit, offset)
        generation, searcher = self._now()
        chosen = generation.rows(_parsed(generation, query, fields))
        with _explained(self._path):
            found = searcher.search(chosen, limit, count=False, offset=offset)
            return [Hit(score=score, row=_row(searcher, address)) for score, address in found.hits]

    def get(self, *key: object) -> dict[str, Any] | None:
        """The row with this key."""
        generation, searcher = self._now()
        names = generation.columns.key
        if len(key) != len(names):
            raise UsageError(
                f"the key of the search index {self._path} is {', '.join(names)}, and {len(key)} values were "
                "given"
            )
        term = tantivy.Query.term_query(generation.index.schema, KEY, key_text(key))
        with _explained(self._path):
            hits = searcher.search(term, 1, count=False).hits
            return _row(searcher, hits[0][1]) if hits else None

    def count(self, query: str = "*", *, fields: Sequence[str] | None = None) -> int:
        """How many rows there are, or how many a query finds."""
        generation, searcher = self._now()
        chosen = generation.rows(_parsed(generation, query, fields))
        with _explained(self._path):
            return _count(searcher, chosen)

    def texts(self, at_once: int) -> Iterator[str]:
        """All rows as JSON, as they are now; `at_once` is how many may be looked up at once."""
        generation, searcher = self._now()
        schema = generation.index.schema
        queries = [tantivy.Query.all_query()]
        if searcher.num_docs > at_once:
            queries = [tantivy.Query.term_query(schema, PART, number) for number in range(PARTS)]
        for query in queries:
            chosen = generation.rows(query)
            with _explained(self._path):
                count = _count(searcher, chosen)
                hits = searcher.search(chosen, count, count=False).hits if count else []
                # Rows that lie together are stored together, and unpacked together.
                addresses = sorted((where.segment_ord, where.doc) for _, where in hits)
            for segment, number in addresses:
                yield _text(searcher, tantivy.DocAddress(segment, number))

    def close(self) -> None:
        """Let go of its files."""
        with self._lock:
            self._open = None

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    def _now(self) -> tuple[Generation, tantivy.Searcher]:
        """The generation that counts, and a searcher that shows its last commit."""
        failure: Exception | None = None
        with self._lock:
            for _ in range(OPEN_ATTEMPTS_MAX):
                path = layout.place(self._path)
                if path is None:
                    self._open = None
                    raise UsageError(
                        f"there is no search index in {self._path}: it is made by the pipeline that writes it"
                    )
                try:
                    if self._open is None or self._open.path != path:
                        self._open = Generation.open(path)
                    self._open.refresh()
                    return self._open, self._open.index.searcher()
                except (OSError, ValueError) as error:
                    # Perhaps another has taken its place meanwhile.
                    self._open, failure = None, error
        raise StorageError(f"the search index {self._path} can't be read: {failure}") from failure


def _parsed(generation: Generation, query: str, fields: Sequence[str] | None) -> tantivy.Query:
    names = generation.columns.text_names if fields is None else list(fields)
    unknown = sorted(set(names) - {column.name for column in generation.columns.searched})
    if unknown:
        raise UsageError(
            f"the search index has no column {', '.join(unknown)} that could be searched: it has "
            f"{', '.join(column.name for column in generation.columns.searched)}"
        )
    try:
        return generation.index.parse_query(query, names)
    except ValueError as error:
        raise UsageError(
            f"the query {query!r} can't be understood: {error}. Put what is to be taken as it is into double "
            'quotes: "a (b"'
        ) from error


def _count(searcher: tantivy.Searcher, query: tantivy.Query) -> int:
    return int(searcher.search(query, 1).count)  # type: ignore[attr-defined] # the stubs leave it out


def _row(searcher: tantivy.Searcher, address: tantivy.DocAddress) -> dict[str, Any]:
    row: dict[str, Any] = json.loads(_text(searcher, address))
    return row


def _text(searcher: tantivy.Searcher, address: tantivy.DocAddress) -> str:
    stored = searcher.doc(address).get_first(ROW)
    assert stored is not None, "each row has its text"
    return bytes(stored).decode()


def _commit_of(path: Path) -> tuple[int, int]:
    """What changes with each commit: the file is replaced."""
    found = (path / _META).stat()
    return found.st_ino, found.st_mtime_ns


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        raise StorageError(f"the search index {path} can't be read: {error}") from error
