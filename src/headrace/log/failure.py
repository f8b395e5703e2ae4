"""Fail-stop: after the first failed write or sync, no write is taken any more.

When an fsync fails, the kernel may already have thrown the dirty pages away and marked them clean; a second
fsync would then report success for data that is gone. So a failed sync is never tried again, nothing more is
acknowledged, and a restart recovers what the disk really has. Reading goes on.
"""

from __future__ import annotations

from headrace.errors import StorageError


class FailStop:
    """Whether the disk has failed, shared by all partitions of a store. Safe to use from several threads."""

    def __init__(self) -> None:
        self.failed: StorageError | None = None

    def check(self) -> None:
        """Raise once anything has failed."""
        if self.failed is not None:
            raise StorageError(f"no writes are taken after a failure: {self.failed}") from self.failed

    def fail(self, doing: str, error: OSError) -> StorageError:
        """Remember the first failure, and return the error to raise for this one."""
        failure = StorageError(
            f"{doing} failed: {error.strerror or error}. No more writes are taken; "
            "free or repair the disk and start again"
        )
        failure.__cause__ = error
        if self.failed is None:
            self.failed = failure
        return failure
