"""Share groups' positions, loaded when there are any or are to be: most brokers never see a share group."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from headrace.errors import CorruptBatch, HeadraceError, StorageError
from headrace.kafka.services import SHARE_STATE_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from uuid import UUID

    from headrace.kafka.share.positions import SharePositions
    from headrace.log.store import LogStore

logger: Final = logging.getLogger(__name__)


class PositionsOnDemand:
    """Stands for SharePositions: whatever else is asked of it loads them. For the event loop's thread."""

    def __init__(self, store: LogStore, make: Callable[[], SharePositions]) -> None:
        self._store = store
        self._make = make
        self._positions: SharePositions | None = None
        self._failure: HeadraceError | None = None

    def load(self) -> SharePositions:
        """The positions themselves. Raises what kept them from being read, once and for all."""
        if self._failure is not None:
            raise self._failure
        if self._positions is None:
            try:
                self._positions = self._make()
            except CorruptBatch as error:
                logger.error("share groups can't be served: %s", error)  # noqa: TRY400  # the message says it all
                self._failure = error
                raise
            except (OSError, ImportError) as error:
                raise StorageError(f"loading share groups failed: {error}") from error
        return self._positions

    def load_what_was_written(self) -> None:
        """Hold positions against the logs as a start has found them; most brokers have none.

        What can't be read is told to those who ask for it.
        """
        if SHARE_STATE_TOPIC in self._store.topics:
            with suppress(HeadraceError):
                self.load()

    def connection_lost(self, connection: str) -> None:
        """End the sessions of a connection. Where nothing was needed yet, there are none."""
        if self._positions is not None:
            self._positions.connection_lost(connection)

    def topics_deleted(self, topic_ids: Collection[UUID]) -> None:
        """Forget positions in topics that are no more. What can't be forgotten now is at the next start."""
        if SHARE_STATE_TOPIC not in self._store.topics:
            return
        try:
            self.load().topics_deleted(topic_ids)
        except HeadraceError as error:
            logger.warning("positions of share groups in deleted topics are not forgotten yet: %s", error)

    def group_deleted(self, group_id: str) -> None:
        """Forget a group's positions. Where none was ever written, there are none."""
        if SHARE_STATE_TOPIC in self._store.topics:
            self.load().group_deleted(group_id)

    def when_durable(self, then: Callable[[HeadraceError | None], None]) -> None:
        """Call back once all that has been written is durable. Where nothing was needed yet, that is all."""
        if self._positions is None:
            then(None)
        else:
            self._positions.when_durable(then)

    def close(self) -> None:
        """Stop all timers."""
        if self._positions is not None:
            self._positions.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.load(), name)
