"""Threads that each write a share of a batch.

They wait for the broker, each up to a minute at a time if none answers; a process that ends does not wait for
them. An executor's threads it would: Python joins those at exit, whatever the executor was told.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from threading import Thread
from typing import TypeVar

Share = TypeVar("Share")


class ShareThreads:
    """The threads of one batch at a time. Another thread may wait for their end."""

    def __init__(self) -> None:
        self._at_work: list[Future[int]] = []

    def run(self, work: Callable[[Share], int], shares: Sequence[Share]) -> list[int]:
        """Do the work for all shares at once; when all are through, return what it gave, or raise."""
        self._at_work = [Future() for _ in shares]
        for future, share in zip(self._at_work, shares, strict=True):
            Thread(target=_work, args=(future, work, share), name="write-share", daemon=True).start()
        wait(self._at_work)
        return [future.result() for future in self._at_work]

    def wait(self, within_s: float) -> None:
        """Wait for those that are at work, so long at most."""
        wait(self._at_work, within_s)


def _work(future: Future[int], work: Callable[[Share], int], share: Share) -> None:
    try:
        future.set_result(work(share))
    except BaseException as error:  # noqa: BLE001 - it is raised where the result is asked for
        future.set_exception(error)
