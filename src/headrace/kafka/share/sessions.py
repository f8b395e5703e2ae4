"""Share sessions: what each member fetches, and that its requests come in order.

    epoch 0       a new session with the partitions that the request names; one that there was is forgotten,
                  and what its member has been given stays its own
    epoch 1 ...   the next request: partitions are added and forgotten; after 2^31 - 1 comes 1
    epoch -1      the last request: it acknowledges, and what the member still has is given back

A session ends with its connection, too: nobody else can say what its member has seen. No I/O, and no clock.
Belongs to the event loop's thread.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from uuid import UUID

from kio.schema.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
INT_MAX: Final = 2**31 - 1
PARTITION_COUNT_MAX: Final = 100_000
"""How many partitions all sessions together may name."""

SharePartition = tuple[UUID, int]
SessionKey = tuple[str, str]
"""The group, and the member."""


@dataclass(slots=True)
class ShareSession:
    """One member's."""

    key: SessionKey
    connection: str
    """What the connection is known by on which it was opened."""
    next_epoch: int = 1
    partitions: OrderedDict[SharePartition, None] = field(default_factory=OrderedDict)
    """In the order in which they are looked at: whichever gave records goes to the end."""

    def advance(self) -> None:
        """Expect the next request."""
        self.next_epoch = 1 if self.next_epoch == INT_MAX else self.next_epoch + 1

    def gave(self, partition: SharePartition) -> None:
        """Let the others come first the next time."""
        if partition in self.partitions:
            self.partitions.move_to_end(partition)


class ShareSessions:
    """All of them."""

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._sessions: dict[SessionKey, ShareSession] = {}
        self._by_connection: dict[str, dict[SessionKey, None]] = {}
        self._partition_count = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def open(
        self, key: SessionKey, connection: str, partitions: Iterable[SharePartition]
    ) -> ShareSession | ErrorCode:
        """Begin a session, where there is room for one; it takes the place of the member's last one."""
        session = ShareSession(key, connection, partitions=OrderedDict.fromkeys(partitions))
        before = self._sessions.get(key)
        left_count = self._partition_count - (0 if before is None else len(before.partitions))
        is_full = before is None and len(self._sessions) >= self._count_max
        if is_full or left_count + len(session.partitions) > PARTITION_COUNT_MAX:
            return ErrorCode.share_session_limit_reached
        if before is not None:
            self.close(before)
        self._sessions[key] = session
        self._by_connection.setdefault(connection, {})[key] = None
        self._partition_count += len(session.partitions)
        return session

    def get(self, key: SessionKey) -> ShareSession | None:
        """The session of a member."""
        return self._sessions.get(key)

    def next(self, key: SessionKey, epoch: int) -> ShareSession | ErrorCode:
        """The session that a request goes on with, or ends."""
        session = self._sessions.get(key)
        if session is None:
            return ErrorCode.share_session_not_found
        if epoch == FINAL_EPOCH:
            return session
        if epoch != session.next_epoch:
            return ErrorCode.invalid_share_session_epoch
        return session

    def change(
        self, session: ShareSession, added: Iterable[SharePartition], forgotten: Iterable[SharePartition]
    ) -> ErrorCode:
        """Fetch other partitions from now on; where there is no room for them, all stays as it is."""
        after = OrderedDict(session.partitions)
        for partition in forgotten:
            after.pop(partition, None)
        after.update(dict.fromkeys(each for each in added if each not in after))
        count = self._partition_count + len(after) - len(session.partitions)
        if count > PARTITION_COUNT_MAX:
            return ErrorCode.share_session_limit_reached
        session.partitions = after
        self._partition_count = count
        return ErrorCode.none

    def close(self, session: ShareSession) -> None:
        """End it."""
        del self._sessions[session.key]
        self._partition_count -= len(session.partitions)
        of_connection = self._by_connection[session.connection]
        del of_connection[session.key]
        if not of_connection:
            del self._by_connection[session.connection]

    def of_connection(self, connection: str) -> list[ShareSession]:
        """Those that were opened on a connection."""
        return [self._sessions[key] for key in self._by_connection.get(connection, ())]
