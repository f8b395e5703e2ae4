"""Consumer groups that are loaded when they are first needed.

Their state machines are a fifth of the broker's code, and most brokers in tests never see a group: a broker
listens sooner without them. One whose topic of offsets is there has groups that live on, so it loads them
when it starts. In all others their code is read ahead, on a thread, some time after the start: or the first
request of a group would keep everybody else waiting for that.
"""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

from headrace.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from headrace.errors import HeadraceError
    from headrace.kafka.consumer_groups import ConsumerGroups


def read_code_ahead() -> None:
    """Read the code of groups, which takes a while, so that it is there when it is needed. For any thread."""
    # What can't be read now is read, or complained of, when it is needed.
    with suppress(OSError, ImportError):
        import_module("headrace.kafka.consumer_groups")


class GroupsOnDemand:
    """Stands for ConsumerGroups: whatever else is asked of it loads them. For the event loop's thread."""

    def __init__(self, make: Callable[[], ConsumerGroups]) -> None:
        self._make = make
        self._groups: ConsumerGroups | None = None
        self._is_sweeping = False

    def load(self) -> ConsumerGroups:
        """The groups themselves."""
        if self._groups is None:
            try:
                self._groups = self._make()
            except (OSError, ImportError) as error:
                raise StorageError(f"loading consumer groups failed: {error}") from error
            if self._is_sweeping:
                self._groups.start_sweeping()
        return self._groups

    def topics_deleted(
        self, names: Collection[str], on_durable: Callable[[HeadraceError | None], None]
    ) -> None:
        """Forget the offsets of these topics. Where no group was needed yet, there are none."""
        if self._groups is None:
            on_durable(None)
        else:
            self._groups.topics_deleted(names, on_durable)

    def start_sweeping(self) -> None:
        """Look for what has outlived its use from now on, or from when there can be any."""
        self._is_sweeping = True
        if self._groups is not None:
            self._groups.start_sweeping()

    def close(self) -> None:
        """Stop all timers."""
        self._is_sweeping = False
        if self._groups is not None:
            self._groups.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.load(), name)
