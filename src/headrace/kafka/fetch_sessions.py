"""Fetch sessions (KIP-227): the broker remembers what a consumer fetches, and says only what has changed.

    client                                       broker
    id 0, epoch 0, all partitions        ->      makes a session, answers about all of them, gives its id
    id, epoch 1, changes                 ->      applies them, answers about what is new
    id, epoch 2, nothing                 ->      the same, and so on; after 2^31 - 1 comes 1
    id, epoch 0, all partitions          ->      forgets the session, makes another
    id, epoch -1, partitions             ->      forgets the session, answers about these without one
    0, epoch -1, partitions              ->      answers without a session, as if there were none

An incremental answer names a partition if it has records or an error, or if its high watermark, its last
stable offset or its start differ from what the client was told last. After an error the client is told all
about the partition again. A partition that gave records goes to the end of the order in which partitions
are read, so that with little room in an answer each gets its turn.

A session is an optimisation, never needed: where there is no room for one more, the client is given none
(id 0) and goes on to name all partitions. Room is made by forgetting the session that was idle longest, if
that is two minutes, or else a session that is older than two minutes and has fewer partitions. Clients learn
of it by FETCH_SESSION_ID_NOT_FOUND and begin anew.

No I/O. Belongs to the event loop's thread.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import uuid4

from kio.schema.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from uuid import UUID

    from headrace.kafka.messages.fetch import FetchPartition, FetchRequest, PartitionData

    Key = tuple[UUID | str, int]

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
INT_MAX: Final = 2**31 - 1
SESSION_COUNT_MAX: Final = 1_000
EVICTION_MS: Final = 120_000
"""A session that was idle for longer makes room for any other."""
PARTITION_COUNT_MAX: Final = 100_000
"""How many partitions all sessions together may name."""


class Wanted(NamedTuple):
    """A partition that is fetched: by the id of its topic where the client uses ids, else by its name."""

    topic: str
    topic_id: UUID | None
    partition: FetchPartition

    @property
    def key(self) -> Key:
        """What identifies the partition among those of a session."""
        return self.topic_id or self.topic, self.partition.partition


class Told(NamedTuple):
    """What the client knows about a partition."""

    high_watermark: int
    last_stable_offset: int
    log_start_offset: int


@dataclass(slots=True)
class CachedPartition:
    """A partition that is fetched, and what the client was told about it: None before that, or an error."""

    wanted: Wanted
    told: Told | None = None
    idle_mark: Any = None
    """For whoever reads: how it finds again, without another look, that there was nothing to read."""

    def want(self, wanted: Wanted) -> None:
        """Read it in another way from now on."""
        self.wanted = wanted
        self.idle_mark = None

    def tells(self, data: PartitionData) -> bool:
        """Whether an answer is news to the client, which takes it to be told."""
        told = Told(data.high_watermark, data.last_stable_offset, data.log_start_offset)
        is_news = bool(data.records) or data.error_code is not ErrorCode.none or told != self.told
        self.told = told if data.error_code is ErrorCode.none else None
        return is_news


class FetchSession:
    """What one consumer fetches."""

    __slots__ = ("created_ms", "epoch", "partitions", "session_id", "used_ms", "uses_topic_ids")

    def __init__(
        self, session_id: int, partitions: dict[Key, CachedPartition], *, uses_topic_ids: bool, now_ms: int
    ) -> None:
        self.session_id = session_id
        self.epoch = next_epoch(INITIAL_EPOCH)
        self.partitions = partitions
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = now_ms
        self.used_ms = now_ms

    def update(self, request: FetchRequest) -> None:
        """Add, change and forget partitions."""
        for wanted in wanted_by(request):
            cached = self.partitions.get(wanted.key)
            if cached is None:
                self.partitions[wanted.key] = CachedPartition(wanted)
            else:
                cached.want(wanted)
        for topic in request.forgotten_topics_data:
            for number in topic.partitions:
                self.partitions.pop((topic.topic_id or topic.topic, number), None)


Results = list[tuple[Wanted, "PartitionData"]]


class FetchContext:
    """One fetch: what to read, and what of that to answer with. This one has no session."""

    session_id = NO_SESSION

    def __init__(self, partitions: Sequence[CachedPartition]) -> None:
        self.partitions = partitions

    def answer(self, data: Sequence[PartitionData | None]) -> Results | ErrorCode:
        """Given what was read of each of the partitions, what the client is to be told.

        None stands for nothing new: no records, no error, and all as it was told.
        """
        return [
            (cached.wanted, each)
            for cached, each in zip(self.partitions, data, strict=True)
            if each is not None
        ]


class NewSession(FetchContext):
    """A full fetch that makes a session if there is room for one."""

    def __init__(
        self,
        sessions: FetchSessions,
        partitions: Sequence[CachedPartition],
        *,
        uses_topic_ids: bool,
        now_ms: int,
    ) -> None:
        super().__init__(partitions)
        self._sessions = sessions
        self._uses_topic_ids = uses_topic_ids
        self._now_ms = now_ms

    def answer(self, data: Sequence[PartitionData | None]) -> Results | ErrorCode:
        """Everything, and the session's id."""
        answer = super().answer(data)
        for cached, each in zip(self.partitions, data, strict=True):
            if each is not None:
                cached.tells(each)
        self.session_id = self._sessions.create(
            {cached.wanted.key: cached for cached in self.partitions},
            uses_topic_ids=self._uses_topic_ids,
            now_ms=self._now_ms,
        )
        return answer


class IncrementalFetch(FetchContext):
    """A fetch in a session."""

    def __init__(self, session: FetchSession) -> None:
        super().__init__(tuple(session.partitions.values()))
        self._session = session
        self._epoch = session.epoch
        self.session_id = session.session_id

    def answer(self, data: Sequence[PartitionData | None]) -> Results | ErrorCode:
        """Only what is new. An error, if another fetch of the session came in between."""
        partitions = self._session.partitions
        if self._session.epoch != self._epoch:
            self.session_id = NO_SESSION
            return ErrorCode.invalid_fetch_session_epoch
        news: Results = []
        for cached, each in zip(self.partitions, data, strict=True):
            if each is not None and cached.tells(each):
                news.append((cached.wanted, each))
                if each.records:
                    key = cached.wanted.key
                    partitions[key] = partitions.pop(key)
        return news


class FetchSessions:
    """All fetch sessions of a broker."""

    def __init__(
        self,
        count_max: int = SESSION_COUNT_MAX,
        *,
        partition_count_max: int = PARTITION_COUNT_MAX,
        new_id: Callable[[], UUID] = uuid4,
    ) -> None:
        self._count_max = count_max
        self._partition_count_max = partition_count_max
        self._new_id = new_id
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        """The one that was idle longest comes first."""
        self._partition_count = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partition_count(self) -> int:
        """How many partitions all sessions together name."""
        return self._partition_count

    def open(self, request: FetchRequest, *, uses_topic_ids: bool, now_ms: int) -> FetchContext | ErrorCode:
        """Begin a fetch, in its session if it has one."""
        if request.session_epoch in {INITIAL_EPOCH, FINAL_EPOCH}:
            self._forget(request.session_id)
            partitions = [CachedPartition(wanted) for wanted in wanted_by(request)]
            if request.session_epoch == FINAL_EPOCH:
                return FetchContext(partitions)
            return NewSession(self, partitions, uses_topic_ids=uses_topic_ids, now_ms=now_ms)
        session = self._sessions.get(request.session_id)
        if session is None:
            return ErrorCode.fetch_session_id_not_found
        if session.epoch != request.session_epoch:
            return ErrorCode.invalid_fetch_session_epoch
        if session.uses_topic_ids != uses_topic_ids:
            return ErrorCode.fetch_session_topic_id_error
        return self._continue(session, request, now_ms)

    def create(self, partitions: dict[Key, CachedPartition], *, uses_topic_ids: bool, now_ms: int) -> int:
        """Make a session and return its id, or none if there is no room."""
        if not partitions or not self._make_room(len(partitions), now_ms):
            return NO_SESSION
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._new_id().int & INT_MAX
        self._sessions[session_id] = FetchSession(
            session_id, partitions, uses_topic_ids=uses_topic_ids, now_ms=now_ms
        )
        self._partition_count += len(partitions)
        return session_id

    def _continue(self, session: FetchSession, request: FetchRequest, now_ms: int) -> FetchContext:
        before = len(session.partitions)
        session.update(request)
        self._partition_count += len(session.partitions) - before
        if not session.partitions or self._partition_count > self._partition_count_max:
            # The client forgets the session when it is answered without one.
            self._forget(session.session_id)
            return FetchContext([CachedPartition(cached.wanted) for cached in session.partitions.values()])
        session.epoch = next_epoch(session.epoch)
        session.used_ms = now_ms
        self._sessions.move_to_end(session.session_id)
        return IncrementalFetch(session)

    def _forget(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._partition_count -= len(session.partitions)

    def _make_room(self, partition_count: int, now_ms: int) -> bool:
        if self._partition_count + partition_count > self._partition_count_max:
            return False
        if len(self._sessions) < self._count_max:
            return True
        victim = self._victim(partition_count, now_ms)
        if victim is None:
            return False
        self._forget(victim.session_id)
        return True

    def _victim(self, partition_count: int, now_ms: int) -> FetchSession | None:
        """The session that makes room for another one with so many partitions."""
        idle_longest = next(iter(self._sessions.values()), None)
        if idle_longest is None or now_ms - idle_longest.used_ms > EVICTION_MS:
            return idle_longest
        old = [session for session in self._sessions.values() if now_ms - session.created_ms > EVICTION_MS]
        smallest = min(old, key=lambda session: len(session.partitions), default=None)
        if smallest is None or len(smallest.partitions) >= partition_count:
            return None
        return smallest


def next_epoch(epoch: int) -> int:
    """The epoch that the next fetch of a session has."""
    return 1 if epoch == INT_MAX else epoch + 1


def wanted_by(request: FetchRequest) -> list[Wanted]:
    """The partitions that a request names."""
    return [
        Wanted(topic.topic, topic.topic_id, partition)
        for topic in request.topics
        for partition in topic.partitions
    ]
