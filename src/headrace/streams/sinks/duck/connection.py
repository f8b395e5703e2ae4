"""A file of DuckDB, opened for as long as it is needed, and its errors in our own words.

One process has the file open for writing, or several for reading. So it is opened for each batch and closed
after it, and whoever has it open meanwhile is waited for. Within this process, one thread at a time has it.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import duckdb

from headrace.errors import HeadraceError, PipelineError, PipelineFailed, StorageError, StoreUnavailable

OPEN_S_MAX: Final = 30.0
"""How long others may have the file open."""
OPEN_PAUSE_S: Final = 0.02
OPEN_PAUSE_S_MAX: Final = 1.0
_LOCKED: Final = ("set lock on file", "being used by another process", "different configuration")
_NOT_OURS: Final = ("not a valid DuckDB database file", "newer version", "older version", "storage version")
_FULL: Final = ("No space left", "Permission denied", "Read-only file system", "Input/output error")

Connection = duckdb.DuckDBPyConnection

_LOCKS: Final[defaultdict[Path, threading.Lock]] = defaultdict(threading.Lock)
_LOCKS_GUARD: Final = threading.Lock()


@contextmanager
def opened(
    path: Path, what: str, *, read_only: bool = False, within_s: float | None = None
) -> Iterator[Connection]:
    """The file, made if it is missing, and errors that say what failed. What is not committed is gone."""
    with _LOCKS_GUARD:
        lock = _LOCKS[path]
    with lock, explained(path, what):
        wait_s = OPEN_S_MAX if within_s is None else within_s
        connection = _connect(path, what, read_only=read_only, within_s=wait_s)
        try:
            yield connection
        finally:
            connection.close()


@contextmanager
def explained(path: Path, what: str) -> Iterator[None]:
    """Say what failed in our own words."""
    try:
        yield
    except duckdb.Error as error:
        raise _explained(path, what, error) from error
    except OSError as error:
        raise StorageError(f"{what} failed in {path}: {error}") from error


def _connect(path: Path, what: str, *, read_only: bool, within_s: float) -> Connection:
    if not read_only:
        path.parent.mkdir(parents=True, exist_ok=True)
    deadline_s, pause_s = time.monotonic() + within_s, OPEN_PAUSE_S
    while True:
        try:
            return duckdb.connect(str(path), read_only=read_only)
        except duckdb.Error as error:
            failure = _explained(path, what, error)
            if not isinstance(failure, StoreUnavailable) or time.monotonic() + pause_s > deadline_s:
                raise failure from error
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, OPEN_PAUSE_S_MAX)


def _explained(path: Path, what: str, error: duckdb.Error) -> HeadraceError:
    words = " ".join(str(error).split())
    told = f"{what} failed in {path}: {words}"
    if isinstance(error, duckdb.IOException) and any(sign in words for sign in _NOT_OURS):
        return PipelineError(f"{told}; name another file, or open it with the DuckDB that wrote it")
    if isinstance(error, duckdb.IOException) and any(sign in words for sign in _FULL):
        return StorageError(told)
    if isinstance(error, duckdb.IOException | duckdb.ConnectionException) and any(
        sign in words for sign in _LOCKED
    ):
        return StoreUnavailable(f"{told}; the file is open elsewhere: let whoever has it open close it")
    if isinstance(error, duckdb.TransactionException):
        return StoreUnavailable(told)
    return PipelineFailed(told)
