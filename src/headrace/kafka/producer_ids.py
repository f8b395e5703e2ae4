"""Producer ids, given out without waiting for the disk on the event loop.

Ids are reserved in blocks (see log/identity.py). The next block is reserved while half of the last one is
still there; whoever comes when none is left waits for it.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.errors import StorageError
    from headrace.kafka.topic_changes import Submit
    from headrace.log.store import LogStore

    Waiter = Callable[[int | HeadraceError], None]


class ProducerIds:
    """Belongs to the event loop's thread."""

    def __init__(self, store: LogStore, submit: Submit, on_failure: Callable[[StorageError], None]) -> None:
        """`on_failure` is called when the disk has failed."""
        self._store = store
        self._submit = submit
        self._on_failure = on_failure
        self._waiters: deque[Waiter] = deque()
        self._is_reserving = False

    def allocate(self, then: Waiter) -> None:
        """Call back with an id that nobody had before, mostly at once, or with what went wrong."""
        self._waiters.append(then)
        self._serve()

    def reserve_ahead(self) -> None:
        """Begin to reserve the next block if few ids are left."""
        if self._is_reserving or not self._store.wants_producer_id_block:
            return
        try:
            change = self._store.begin_producer_id_block()
        except HeadraceError as error:
            self._refuse(error)
            return
        self._is_reserving = True

        def finish() -> None:
            self._is_reserving = False
            try:
                change.finish()
            except HeadraceError as error:
                if self._store.failed is not None:
                    self._on_failure(self._store.failed)
                self._refuse(error)
            else:
                self._serve()

        self._submit(change.run, finish)

    def _serve(self) -> None:
        while self._waiters:
            try:
                taken = self._store.take_producer_ids(1)
            except HeadraceError as error:
                self._refuse(error)
                return
            if taken is None:
                break
            self._waiters.popleft()(taken[0])
        self.reserve_ahead()

    def _refuse(self, error: HeadraceError) -> None:
        waiters, self._waiters = self._waiters, deque()
        for waiter in waiters:
            waiter(error)
