"""What handlers work with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol
from uuid import uuid4

from headrace.config import MIB
from headrace.kafka.fetch_sessions import FetchSessions
from headrace.kafka.metrics.counters import Counters

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from uuid import UUID

    from headrace.clock import Clock
    from headrace.config import Address, BrokerConfig
    from headrace.kafka.commit import GroupCommit
    from headrace.kafka.consumer_groups import ConsumerGroups
    from headrace.kafka.producer_ids import ProducerIds
    from headrace.kafka.producer_transactions import ProducerTransactions
    from headrace.kafka.security.logins import Logins
    from headrace.kafka.security.session import SaslSession
    from headrace.kafka.share.positions import SharePositions
    from headrace.kafka.topic_changes import TopicChanges
    from headrace.kafka.unsent_answers import UnsentAnswers
    from headrace.kafka.watchers import Watchers
    from headrace.log.partition import PartitionLog
    from headrace.log.store import LogStore
    from headrace.log.topic import Topic

NODE_ID: Final = 1
"""There is one broker, and this is its number."""
OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"
SHARE_STATE_TOPIC: Final = "__share_group_state"
INTERNAL_TOPICS: Final[Mapping[str, Mapping[str, str]]] = {
    OFFSETS_TOPIC: {"cleanup.policy": "compact", "segment.bytes": str(100 * MIB)},
    TRANSACTIONS_TOPIC: {"cleanup.policy": "compact", "segment.bytes": str(100 * MIB)},
    SHARE_STATE_TOPIC: {"cleanup.policy": "compact", "segment.bytes": str(100 * MIB)},
}
"""The topics that only the broker writes, and the settings that they are created with."""
ANONYMOUS: Final = "User:ANONYMOUS"
"""The principal of a client that did not have to say who it is."""


class Timer(Protocol):
    """A call that will be made."""

    def cancel(self) -> None:
        """Don't make the call."""
        ...


class Scheduler(Protocol):
    """Makes calls later, on the event loop's thread. An asyncio event loop is one."""

    def call_later(self, delay: float, callback: Callable[[], None], /) -> Timer:
        """Call back after so many seconds."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The parts of the broker that handlers use. They belong to the event loop's thread."""

    config: BrokerConfig
    store: LogStore
    clock: Clock
    scheduler: Scheduler
    commit: GroupCommit
    watchers: Watchers
    groups: ConsumerGroups
    topics: TopicChanges
    producer_ids: ProducerIds
    transactions: ProducerTransactions
    shares: SharePositions
    """What share groups have of the partitions that they read."""
    unsent_answers: UnsentAnswers
    """What clients have not taken yet."""
    fetch_sessions: FetchSessions = field(default_factory=FetchSessions)
    new_id: Callable[[], UUID] = uuid4
    """Makes ids that nobody else has, such as those of group members."""
    logins: Logins | None = None
    """How clients log in, and as whom. Only a test that needs no users does without."""
    counters: Counters = field(default_factory=Counters)
    """What is counted where requests are served."""

    def topic(self, name: str, topic_id: UUID | None = None) -> Topic | None:
        """The topic by its id where the request has one, else by its name."""
        return self.store.topics.get(name) if topic_id is None else self.store.topics_by_id.get(topic_id)

    def partition(self, name: str, topic_id: UUID | None, index: int) -> PartitionLog | None:
        """A partition, by the topic's id or name."""
        topic = self.topic(name, topic_id)
        if topic is None or not 0 <= index < len(topic.partitions):
            return None
        return topic.partitions[index]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request's surroundings: the broker that it reached, and who sent it."""

    services: Services
    client_id: str
    host: str
    address: Address
    """The address under which this client reaches the broker."""
    api_version: int
    port: int = 0
    principal: str = ANONYMOUS
    """Who the client has proved to be, as Kafka writes it: `User:alice`."""
    session: SaslSession | None = None
    """The connection's log-in, where there must be one."""
