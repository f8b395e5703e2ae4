"""Changes of topics, without waiting for the disk on the event loop.

Changes of one topic come one after the other: each is checked and begun when the one before it has ended. So
of two that create the same topic at once, the first wins and the second finds it there, and settings are
changed from what they are, not from what they were. Changes of different topics don't wait for each other
here, though the disk thread does one at a time.

Whoever is told of a change may have more to do before the next one begins, such as forgetting what groups
know of a topic that is gone, before there is another one of its name.
"""

from __future__ import annotations

import logging
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headrace.errors import StorageError
    from headrace.kafka.answer import Pending
    from headrace.log.change import Change
    from headrace.log.store import LogStore
    from headrace.log.topic import Topic

    Begin = Callable[[], Change[Any]]
    Then = Callable[[Any], Pending[bool] | None]

logger: Final = logging.getLogger(__name__)

Result = TypeVar("Result")


class Submit(Protocol):
    """Does work that waits for the disk elsewhere, then calls back on the event loop's thread."""

    def __call__(self, work: Callable[[], None], then: Callable[[], None], /) -> None:
        """Do the work, then call back."""
        ...


class TopicChanges:
    """Belongs to the event loop's thread."""

    def __init__(self, store: LogStore, submit: Submit, on_failure: Callable[[StorageError], None]) -> None:
        """`on_failure` is called when the disk has failed."""
        self._store = store
        self._submit = submit
        self._on_failure = on_failure
        self._waiting: dict[str, deque[tuple[Begin, Then]]] = {}
        """By topic that is being changed, the changes that come after."""

    def change(
        self,
        name: str,
        begin: Callable[[], Change[Result]],
        then: Callable[[Result | HeadraceError], Pending[bool] | None],
    ) -> None:
        """Begin a change when no other of the topic is going on, and call back with its outcome.

        What `begin` raises is an outcome, too. The call may come before this returns. Where it returns
        something pending, the next change of the topic begins when that is resolved.
        """
        waiting = self._waiting.get(name)
        if waiting is not None:
            waiting.append((begin, then))
            return
        self._waiting[name] = deque([(begin, then)])
        self._begin_next(name)

    def ensure(
        self,
        name: str,
        partition_count: int,
        config: Mapping[str, str],
        then: Callable[[Topic | HeadraceError], None],
    ) -> None:
        """Call back with the topic, after creating it where it is missing."""
        topic = self._store.topics.get(name)
        if topic is not None:
            then(topic)
            return

        def on_outcome(outcome: Topic | HeadraceError) -> None:
            # Somebody else may have created it while this waited for its turn.
            then(self._store.topics.get(name) or outcome)

        self.change(
            name, lambda: self._store.catalog.begin_creation(name, partition_count, config), on_outcome
        )

    def _begin_next(self, name: str) -> None:
        waiting = self._waiting[name]
        while waiting:
            begin, then = waiting.popleft()
            try:
                change = begin()
            except HeadraceError as error:
                self._tell(then, error)
            else:
                self._submit(change.run, partial(self._finish, name, change, then))
                return
        del self._waiting[name]

    def _finish(self, name: str, change: Change[Any], then: Then) -> None:
        try:
            outcome = change.finish()
        except HeadraceError as error:
            outcome = error
        rest = self._tell(then, outcome)
        if rest is None:
            self._begin_next(name)
        else:
            rest.then(lambda _: self._begin_next(name))

    def _tell(self, then: Then, outcome: object) -> Pending[bool] | None:
        if self._store.failed is not None:
            self._on_failure(self._store.failed)
        try:
            return then(outcome)
        except Exception:
            # The changes that wait for this one must come to their turn, whatever mistake of ours this is.
            logger.exception("a change of a topic was not answered")
            return None
