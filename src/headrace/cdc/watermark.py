"""Which rows of a chunk were overtaken by the stream: the pure part of snapshots that go on beside it.

A chunk is read while changes go on, in a transaction whose view of the database is S, and then a logical
message, the chunk's watermark, is written into the database's log. The stream shows all changes in the order
of their commits, and the watermark among them. At the watermark the chunk's rows are published, except those
whose key was changed by a transaction that S did not see:

- A change that S saw was committed before S was taken, so it came before the watermark: the row is as new.
- A change that S did not see and that came before the watermark is newer than the row: the row is dropped.
- A change that comes after the watermark is published after the row.

Whether S saw a transaction is told by its number, not by its place in the log: a commit is in the log before
other sessions see it, so that a chunk may be older than a change that came before even the read was begun. So
the changes of a table are noted from before its first chunk is read, and that waits until all is seen that
was published before (`RecentTransactions`).

    S = xmin:xmax:running     a transaction below xmin was over; one from xmax on had not begun; those between
                              were over unless they are listed

The stream has the lower 32 bits of numbers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from headrace.errors import ProtocolError

TRANSACTIONS_MAX: Final = 100_000
"""How many transactions may be published while one that was before them waits to be seen."""
TRANSACTION_NS_MAX: Final = 3600 * 10**9
"""How long it may wait: numbers come round again, and an old one would be taken for one to come."""
_HALF: Final = 1 << 31
_ALL: Final = 1 << 32


@dataclass(frozen=True, slots=True)
class View:
    """What a transaction saw of others: pg_current_snapshot()."""

    xmin: int
    xmax: int
    running: frozenset[int]

    @classmethod
    def parse(cls, text: str) -> View:
        """Read `xmin:xmax:running,...`."""
        try:
            xmin, xmax, running = text.split(":")
            listed = frozenset(int(each) for each in running.split(",") if each)
            return cls(int(xmin), int(xmax), listed)
        except ValueError as error:
            raise ProtocolError(
                f"{text!r} is no snapshot of PostgreSQL: they look like 10:20:10,14"
            ) from error

    def sees(self, xid: int) -> bool:
        """Whether a transaction was over. The number has 32 bits and is at most 2^31 away from ours."""
        whole = self._whole(xid)
        return whole < self.xmin or (whole < self.xmax and whole not in self.running)

    def _whole(self, xid: int) -> int:
        distance = (xid - self.xmax) % _ALL
        return self.xmax + (distance - _ALL if distance >= _HALF else distance)


class RecentTransactions:
    """The numbers of the last transactions of the stream, in its order."""

    def __init__(self, begun: Iterable[tuple[int, int]] = ()) -> None:
        self._begun: deque[tuple[int, int]] = deque(begun, maxlen=TRANSACTIONS_MAX)

    def add(self, xid: int, now_ns: int) -> None:
        """One more has come."""
        self._begun.append((xid, now_ns))

    def unseen_by(self, view: View) -> frozenset[int]:
        """Those that were in the log, and that a view did not see."""
        return frozenset(xid for xid, _ in self._begun if not view.sees(xid))

    def copy(self, now_ns: int) -> RecentTransactions:
        """Those that are known by now, for another thread."""
        return RecentTransactions(each for each in self._begun if now_ns - each[1] < TRANSACTION_NS_MAX)


class ChangedKeys:
    """The keys that transactions have changed, by topic, as long as a chunk may be older than them."""

    def __init__(self) -> None:
        self._topic: str | None = None
        self._keys: dict[int, set[bytes | None]] = {}

    @property
    def key_count(self) -> int:
        """How many are noted."""
        return sum(map(len, self._keys.values()))

    def watch(self, topic: str | None) -> None:
        """Note changes of this topic's table from now on, and of no other."""
        if topic != self._topic:
            self._topic = topic
            self._keys = {}

    @property
    def topic(self) -> str | None:
        """Whose changes are noted."""
        return self._topic

    def note(self, xid: int, key: bytes | None) -> None:
        """A transaction has changed the row of a key; None: all rows, as TRUNCATE does."""
        self._keys.setdefault(xid, set()).add(key)

    def overtaken(self, view: View) -> ChangedSince:
        """What was changed by transactions that a view did not see.

        What it saw is forgotten: all later views see it, too, however long another transaction stays open.
        """
        self._keys = {xid: keys for xid, keys in self._keys.items() if not view.sees(xid)}
        keys = frozenset().union(*self._keys.values())
        return ChangedSince(keys=keys, are_all=None in keys)


@dataclass(frozen=True, slots=True)
class ChangedSince:
    """The keys whose rows a chunk must not publish."""

    keys: frozenset[bytes | None]
    are_all: bool

    def __contains__(self, key: bytes | None) -> bool:
        return self.are_all or key in self.keys
