"""Who wants to know when a partition has more to read: parked fetches."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from headrace.log.partition import PartitionLog

    Callback = Callable[[], None]

logger: Final = logging.getLogger(__name__)


class Watchers:
    """Callbacks by partition. Belongs to the event loop's thread."""

    def __init__(self) -> None:
        self._callbacks: dict[PartitionLog, dict[Callback, None]] = {}

    @property
    def count(self) -> int:
        """How many fetches are parked. Safe to call from any thread: it may be a moment behind."""
        return len(
            {callback for callbacks in tuple(self._callbacks.values()) for callback in tuple(callbacks)}
        )

    def watch(self, logs: Iterable[PartitionLog], callback: Callback) -> None:
        """Call back whenever one of the partitions can be read further, until unwatched."""
        for log in logs:
            self._callbacks.setdefault(log, {})[callback] = None

    def unwatch(self, logs: Iterable[PartitionLog], callback: Callback) -> None:
        """Stop calling back."""
        for log in logs:
            callbacks = self._callbacks.get(log)
            if callbacks is not None:
                callbacks.pop(callback, None)
                if not callbacks:
                    del self._callbacks[log]

    def notify(self, log: PartitionLog) -> None:
        """Call everybody who watches the partition. A mistake of ours in one call is not for the others."""
        for callback in tuple(self._callbacks.get(log, ())):
            try:
                callback()
            except Exception:
                logger.exception("a fetch that waited for %s failed in an unexpected way", log.directory)
