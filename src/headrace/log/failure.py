"""Fail-stop: after the first failed write or sync, no write is taken any more.

When an fsync fails, the kernel may already have marked the dirty pages clean without writing them; a second
fsync would then report success for data that is not on the disk. So a failed sync is never tried again, and
nothing more is acknowledged. Reading goes on.

A restart is no cure by itself: as long as the machine runs, the new process reads those same pages, finds
them whole, and would sync them in vain. So recovery writes again, byte for byte, all that is not known to be
durable, which makes the pages dirty, before it syncs and counts it (see recovery.py).

A file that could not be *opened*, for want of file descriptors or memory, is another matter: nothing was
written and no sync attempted. That is TooManyOpenFiles, which stops nothing and may be tried again.
"""

from __future__ import annotations

from headrace.errors import StorageError, TooManyOpenFiles
from headrace.log.disk import OpenRefused


class FailStop:
    """Whether the disk has failed, shared by all partitions of a store. Safe to use from several threads."""

    def __init__(self) -> None:
        self.failed: StorageError | None = None

    def check(self) -> None:
        """Raise once anything has failed."""
        if self.failed is not None:
            raise StorageError(f"no writes are taken after a failure: {self.failed}") from self.failed

    def fail(self, doing: str, error: OSError) -> StorageError:
        """Remember the first failure, and return the error to raise for this one.

        If a file could not be opened, nothing has failed yet, and nothing is remembered.
        """
        if isinstance(error, OpenRefused):
            return storage_error(doing, error)
        failure = StorageError(
            f"{doing} failed: {error.strerror or error}. No more writes are taken; "
            "free or repair the disk and start again"
        )
        failure.__cause__ = error
        if self.failed is None:
            self.failed = failure
        return failure


def storage_error(doing: str, error: OSError) -> StorageError:
    """The error to raise where a failure has no consequences."""
    if isinstance(error, OpenRefused):
        return TooManyOpenFiles(
            f"{doing} failed before it began: {error}. Try again; if it stays, raise the limit of open "
            "files (ulimit -n)"
        )
    return StorageError(f"{doing} failed: {error}")
