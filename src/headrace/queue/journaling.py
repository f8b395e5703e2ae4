"""What the logic asks of a journal, and the one that keeps nothing.

The logic changes its state at once and tells the journal, which gathers what it is told and writes it when
it is asked to flush. An operation is told whole between two flushes, so that it is on disk whole or not at
all. The journal in journal.py keeps all of it in the log; `NoJournal` is for brokers in memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from headrace.errors import StorageError
    from headrace.queue.message import Entry, Message
    from headrace.queue.topology import TopologyRecord

EVERYTHING: Final = 1 << 62
"""A horizon that no position reaches."""


class Journal(Protocol):
    """Where the broker's state survives. Belongs to the event loop's thread."""

    @property
    def is_kept(self) -> bool:
        """Whether anything survives at all."""
        ...

    @property
    def token(self) -> int:
        """Stands for everything that was told so far; grows."""
        ...

    @property
    def durable_token(self) -> int:
        """Everything up to this would survive a loss of power."""
        ...

    @property
    def pending_bytes(self) -> int:
        """How much was told since the last flush."""
        ...

    def publish(self, message: Message, entries: Sequence[Entry]) -> None:
        """A message has come to queues. Sets its location. What is not stored is kept as bytes only."""
        ...

    def settle(self, entry: Entry) -> None:
        """A message has left a queue for good."""
        ...

    def unneeded(self, location: int, kept_bytes: int) -> None:
        """A place for which so many bytes count is no longer needed by a queue; the journal knows why."""
        ...

    def came_back(self, entry: Entry) -> None:
        """A message has come back to its queue once more, which counts it."""
        ...

    def horizon(self, queue_id: int, position: int) -> None:
        """Messages of the queue below the position may have been delivered."""
        ...

    def purged(self, queue_id: int, below_position: int, kept: Collection[int]) -> None:
        """All messages of the queue below a position have left it, but for those at some positions."""
        ...

    def change(self, record: TopologyRecord) -> None:
        """A durable exchange, queue or binding has come or gone."""
        ...

    def token_of(self, message: Message) -> int:
        """Stands for the message being in the journal."""
        ...

    def load(self, message: Message) -> None:
        """Read a message whose body is not in memory. Raises StorageError, after which nothing is taken."""
        ...

    def load_time(self, message: Message) -> None:
        """Read when a message was published, and not its body."""
        ...

    def forget_later(self, message: Message) -> None:
        """Drop a message's body from memory as soon as it can be read back."""
        ...

    def flush(self) -> None:
        """Hand over what was told, and have it made durable."""
        ...

    def when_durable(self, token: int, callback: Callable[[], None]) -> None:
        """Call back once everything up to the token would survive a loss of power; at once where it would.

        Never, once it has failed: whoever waits is told of that by others.
        """
        ...

    def fail(self, error: StorageError) -> None:
        """Take no more: what is in memory and what is on disk are not the same any more, or may not be."""
        ...


class NoJournal:
    """Keeps nothing: all that was told is as durable as it will ever be."""

    is_kept: Final = False
    token: Final = 0
    durable_token: Final = 0
    pending_bytes: Final = 0

    def publish(self, message: Message, entries: Sequence[Entry]) -> None:
        """Nothing is stored, so nobody calls this."""

    def settle(self, entry: Entry) -> None:
        """Nothing was stored."""

    def unneeded(self, location: int, kept_bytes: int) -> None:
        """Nothing was stored."""

    def came_back(self, entry: Entry) -> None:
        """Nothing was stored."""

    def horizon(self, queue_id: int, position: int) -> None:
        """Nothing is delivered again after a restart."""

    def purged(self, queue_id: int, below_position: int, kept: Collection[int]) -> None:
        """Nothing was stored."""

    def change(self, record: TopologyRecord) -> None:
        """Nothing survives."""

    def token_of(self, message: Message) -> int:  # noqa: ARG002
        """Nothing is waited for."""
        return 0

    def load(self, message: Message) -> None:  # noqa: ARG002
        """Bodies never leave memory here."""
        raise AssertionError("a message without a journal has lost its body")

    def load_time(self, message: Message) -> None:
        """Times never leave memory here."""

    def forget_later(self, message: Message) -> None:
        """The body is nowhere else."""

    def flush(self) -> None:
        """There is nothing to hand over."""

    def when_durable(self, token: int, callback: Callable[[], None]) -> None:  # noqa: ARG002
        """Call back at once."""
        callback()

    def fail(self, error: StorageError) -> None:
        """Nothing is on disk, so that only a mistake of ours comes here."""
        raise error
