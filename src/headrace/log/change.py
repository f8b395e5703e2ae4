"""A change of the store in two steps, so that the event loop never waits for the disk.

    begin, on the loop's thread     checks, and takes what nobody else may touch meanwhile
    run, on any thread              waits for the disk; nobody sees anything of it
    finish, on the loop's thread    shows what was done to everybody, or raises what went wrong

A crash before `run` returns leaves all of the change or nothing of it; one after that leaves all of it. Runs
wait for each other: there is one writer of topics at a time.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from headrace.errors import HeadraceError, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from threading import Lock

    from headrace.log.failure import FailStop

logger: Final = logging.getLogger(__name__)

Result = TypeVar("Result")


class Change(Generic[Result]):
    """A change that was begun. Call `run` once, then `finish` once, whatever became of the run."""

    def __init__(
        self,
        doing: str,
        work: Callable[[], Callable[[], Result]],
        *,
        lock: Lock,
        fail_stop: FailStop,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        """`work` waits for the disk and returns what is left to do on the loop's thread.

        `on_end` is called by `finish` in any case, before anything is published.
        """
        self._doing = doing
        self._work = work
        self._lock = lock
        self._fail_stop = fail_stop
        self._on_end = on_end
        self._publish: Callable[[], Result] | None = None
        self._error: HeadraceError | None = None

    def run(self) -> None:
        """Do what waits for the disk. Errors are kept for `finish`."""
        try:
            with self._lock:
                self._fail_stop.check()
                self._publish = self._work()
        except OSError as error:
            self._error = self._fail_stop.fail(self._doing, error)
        except HeadraceError as error:
            self._error = error
        except Exception as error:
            # Whoever waits for this must hear something: a mistake of ours counts as a disk that has failed.
            logger.exception("%s failed in an unexpected way", self._doing)
            self._error = StorageError(f"{self._doing} failed in an unexpected way: {error!r}")

    def finish(self) -> Result:
        """Publish what was done, or raise what went wrong."""
        self._on_end()
        if self._publish is None:
            raise self._error or StorageError(f"{self._doing} was never run")
        return self._publish()

    def at_once(self) -> Result:
        """Run and finish, for whoever may wait for the disk."""
        self.run()
        return self.finish()
