"""What a pipeline knows of a store that follows: a search index, a cache, a warehouse. Opens nothing.

All have a key. A row takes the place of the one with the same key, and one whose column `_delete` is true
removes it, which is what `hr.upserts` returns. An address says where the store is: embedded, or a server.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from headrace.errors import ConfigError
from headrace.streams.table import DEFAULT_WRITERS, DeltaTable, PostgresTable, as_key, check_key

_REDIS: Final = ("redis", "rediss", "unix")
_HTTP: Final = ("http", "https")
_INDEX_NAME_BYTES_MAX: Final = 200
_REFUSED_IN_INDEX_NAMES: Final = frozenset('\\/*?"<>| ,#:')


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedIndex:
    """A search index in a directory, by tantivy. Make one with `search_index(...)`."""

    path: Path
    """Where the driver finds it, and the executors too."""
    key: tuple[str, ...]
    text: tuple[str, ...] = ()
    """Columns that are searched word by word; all of text, if nothing is said."""
    writers: int = DEFAULT_WRITERS
    """How many tasks prepare a batch; one process writes it."""

    def __post_init__(self) -> None:
        _check(self.noun, self.name, self.key, self.writers)

    @property
    def noun(self) -> str:
        """What it is."""
        return "search index"

    @property
    def refuses_rows(self) -> bool:
        """Whether there are rows that it can't take, which go to a topic."""
        return True

    @property
    def name(self) -> str:
        """The directory."""
        return str(self.path)

    def elsewhere(self, path: str) -> EmbeddedIndex:
        """An index in another directory, for the same rows."""
        return EmbeddedIndex(path=Path(path).absolute(), key=self.key, text=self.text, writers=self.writers)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedIndex:
    """An index of OpenSearch or Elasticsearch. Make one with `search_index(...)`."""

    url: str = field(repr=False)
    """Of the server. It may hold a password, so it is never shown."""
    index: str
    key: tuple[str, ...]
    text: tuple[str, ...] = ()
    writers: int = DEFAULT_WRITERS

    def __post_init__(self) -> None:
        _check(self.noun, self.name, self.key, self.writers)
        name = self.index
        if (
            not name
            or name != name.lower()
            or name[0] in "-_+."
            or len(name.encode()) > _INDEX_NAME_BYTES_MAX
            or _REFUSED_IN_INDEX_NAMES.intersection(name)
        ):
            raise ConfigError(
                f"{name!r} can't name a search index: use lower case, at most {_INDEX_NAME_BYTES_MAX} bytes, "
                "none of \\ / * ? \" < > | , # : and no space, and don't begin with - _ + or ."
            )

    @property
    def noun(self) -> str:
        """What it is."""
        return "search index"

    @property
    def refuses_rows(self) -> bool:
        """Whether there are rows that it can't take, which go to a topic."""
        return True

    @property
    def name(self) -> str:
        """The index."""
        return self.index

    def elsewhere(self, index: str) -> ServedIndex:
        """Another index of the same server, for the same rows."""
        return ServedIndex(url=self.url, index=index, key=self.key, text=self.text, writers=self.writers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """A hash of Redis: a field for each key, whose value is the row in JSON. Make one with `cache(...)`."""

    url: str = field(repr=False)
    """Of the server. It may hold a password, so it is never shown."""
    hash_name: str
    key: tuple[str, ...]
    writers: int = DEFAULT_WRITERS

    def __post_init__(self) -> None:
        _check(self.noun, self.name, self.key, self.writers)
        if not self.hash_name or set(self.hash_name) & set("{}"):
            raise ConfigError(f"{self.hash_name!r} can't name a cache: give it a name without braces")

    @property
    def noun(self) -> str:
        """What it is."""
        return "cache"

    @property
    def refuses_rows(self) -> bool:
        """Whether there are rows that it can't take, which go to a topic."""
        return True

    @property
    def name(self) -> str:
        """The hash."""
        return self.hash_name

    def elsewhere(self, name: str) -> Cache:
        """Another hash of the same server, for the same rows."""
        return Cache(url=self.url, hash_name=name, key=self.key, writers=self.writers)


@dataclass(frozen=True, slots=True, kw_only=True)
class DuckdbTable:
    """A table in a file of DuckDB. Make one with `duckdb_table(...)`."""

    path: Path
    """The file; the driver writes it."""
    table_name: str
    key: tuple[str, ...]
    writers: int = DEFAULT_WRITERS
    """How many tasks prepare a batch; one process writes it."""

    def __post_init__(self) -> None:
        _check(self.noun, self.name, self.key, self.writers)
        if not self.table_name or "\0" in self.table_name:
            raise ConfigError(f"{self.table_name!r} can't name a table of DuckDB")

    @property
    def noun(self) -> str:
        """What it is."""
        return "DuckDB table"

    @property
    def refuses_rows(self) -> bool:
        """All rows that fit its columns are taken."""
        return False

    @property
    def name(self) -> str:
        """The file and the table."""
        return f"{self.path}:{self.table_name}"

    def elsewhere(self, table: str) -> DuckdbTable:
        """Another table of the same file, for the same rows."""
        return DuckdbTable(path=self.path, table_name=table, key=self.key, writers=self.writers)


SearchIndex = EmbeddedIndex | ServedIndex
Table = PostgresTable | DeltaTable | EmbeddedIndex | ServedIndex | Cache | DuckdbTable
"""All that has rows and is no topic."""


def search_index(
    address: Path | str,
    name: str,
    *,
    key: str | Sequence[str],
    text: str | Sequence[str] = (),
    writers: int = DEFAULT_WRITERS,
) -> SearchIndex:
    """Describe a search index: in a directory of the directory `address`, or on a server by its URL.

    `text` are the columns that are searched word by word, all of text if nothing is said; the others are
    found by their whole values. It is made from the rows' columns if it is missing.
    """
    words = as_key(text)
    if "://" not in str(address):
        return EmbeddedIndex(
            path=(Path(address) / name).absolute(), key=as_key(key), text=words, writers=writers
        )
    if urlsplit(str(address)).scheme not in _HTTP:
        raise ConfigError(
            f"the search index {name} has the address {_shown(str(address))}: give a directory, or the URL "
            "of OpenSearch or Elasticsearch, https://host:9200"
        )
    return ServedIndex(url=str(address), index=name, key=as_key(key), text=words, writers=writers)


def cache(url: str, name: str, *, key: str | Sequence[str], writers: int = DEFAULT_WRITERS) -> Cache:
    """Describe a cache: a hash of a Redis server, `redis://host:6379/0`.

    The row with the key 42 is what `HGET name 42` answers, in JSON. Values of several key columns are joined
    by colons: `HGET lines 42:1`.
    """
    if urlsplit(url).scheme not in _REDIS:
        raise ConfigError(
            f"the cache {name} has the address {_shown(url)}: give the URL of a Redis server, "
            "redis://host:6379/0, rediss:// with TLS, or unix:///path/to/socket"
        )
    return Cache(url=url, hash_name=name, key=as_key(key), writers=writers)


def duckdb_table(
    path: Path | str, table: str, *, key: str | Sequence[str], writers: int = DEFAULT_WRITERS
) -> DuckdbTable:
    """Describe a table of a file of DuckDB, which is made from the rows' columns if it is missing."""
    if "://" in str(path):
        raise ConfigError(f"the DuckDB table {table} is in {path}, which is not a file: give a path")
    return DuckdbTable(path=Path(path).absolute(), table_name=table, key=as_key(key), writers=writers)


def _check(noun: str, name: str, key: tuple[str, ...], writers: int) -> None:
    if not key:
        raise ConfigError(f'the {noun} {name} has no key by which rows are told apart: say key="column"')
    check_key(f"{noun} {name}", key)
    if writers < 1:
        raise ConfigError(f"{noun} {name}: writers is {writers}; use at least 1")


def _shown(address: str) -> str:
    """An address without what may be secret in it."""
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.hostname or ''}"
