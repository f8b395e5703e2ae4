"""Has the checkpoints of partitions made on the disk's thread, so that the event loop does not wait."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final

from headrace.errors import PartitionClosed, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.kafka.topic_changes import Submit
    from headrace.log.partition import PartitionLog
    from headrace.log.store import LogStore

logger: Final = logging.getLogger(__name__)


class CheckpointRequests:
    """One request at a time for each partition. Belongs to the event loop's thread."""

    def __init__(self, store: LogStore, submit: Submit, on_failure: Callable[[StorageError], None]) -> None:
        """`on_failure` is called when the disk has failed."""
        self._store = store
        self._submit = submit
        self._on_failure = on_failure
        self._asked: dict[PartitionLog, bool] = {}
        """By partition whose checkpoint is being made, whether another one has become due meanwhile."""

    def ask(self, log: PartitionLog) -> None:
        """Have the checkpoint of a partition made, after the one that is being made."""
        if log in self._asked:
            self._asked[log] = True
        else:
            self._asked[log] = False
            self._submit(partial(_make, log), partial(self._made, log))

    def _made(self, log: PartitionLog) -> None:
        is_due_again = self._asked.pop(log)
        if is_due_again and self._store.failed is None:
            self.ask(log)
        if self._store.failed is not None:
            self._on_failure(self._store.failed)


def _make(log: PartitionLog) -> None:
    try:
        log.checkpoint()
    except PartitionClosed:
        logger.debug("no checkpoint of %s: it was closed", log.directory)
    except StorageError as error:
        # The next one makes up for it, unless the disk has failed; that is told by others.
        logger.warning("no checkpoint of %s: %s", log.directory, error)
