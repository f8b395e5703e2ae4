"""Which APIs and versions are offered, and who handles them.

The ranges are those of Apache Kafka 4.3, as far as this broker implements the API at all. A request for
anything else closes its connection, as Kafka does: clients ask for ApiVersions first.

An API's messages and its handler are loaded when it is first asked for: there are hundreds of message
classes, making them takes longer than all else that a broker does before it listens, and most clients use ten
APIs. The names follow from the API's own:

    Metadata    messages.metadata.MetadataRequest    handlers.<home>.handle_metadata
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from headrace.kafka.codec.frame import API_VERSIONS_KEY
from headrace.kafka.services import OFFSETS_TOPIC, SHARE_STATE_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.kafka.codec.shape import MessageClass
    from headrace.kafka.services import Call

    Handler = Callable[[Call, Any], Any]

PRODUCE_KEY: Final = 0

_WORD_START: Final = re.compile(r"(?<!^)(?=[A-Z])")


class Api:
    """One API: the versions on offer, the class of its requests, and the handler."""

    __slots__ = ("_home", "_needs", "handler", "key", "name", "request", "version_first", "version_last")

    request: MessageClass
    handler: Handler

    def __init__(
        self,
        key: int,
        version_first: int,
        version_last: int,
        name: str,
        home: str,
        *,
        needs: str | tuple[str, ...] = (),
    ) -> None:
        """`home` is the module of the handler; `needs` are internal topics that it needs."""
        self.key = key
        self.version_first = version_first
        self.version_last = version_last
        self.name = name
        self._home = home
        self._needs = (needs,) if isinstance(needs, str) else needs

    def offers(self, version: int) -> bool:
        """Whether the version is on offer."""
        return self.version_first <= version <= self.version_last

    def handled_by(self, handler: Handler) -> Api:
        """The same API with another handler."""
        api = Api(self.key, self.version_first, self.version_last, self.name, self._home)
        api.request, api.handler = self.request, handler
        return api

    def __getattr__(self, attribute: str) -> Any:
        # Only what has not been set yet comes here: after the first time, both are plain attributes.
        if attribute not in {"request", "handler"}:
            raise AttributeError(attribute)
        self._load()
        return getattr(self, attribute)

    def _load(self) -> None:
        own_name = _WORD_START.sub("_", self.name).lower()
        self.request = getattr(import_module(f"headrace.kafka.messages.{own_name}"), f"{self.name}Request")
        home = import_module(f"headrace.kafka.handlers.{self._home}")
        handler: Handler = getattr(home, f"handle_{own_name}")
        for topic in self._needs:
            internal_topic = import_module("headrace.kafka.handlers.internal_topic")
            handler = internal_topic.needing(topic, handler)
        self.handler = handler


_ALL: Final = (
    Api(PRODUCE_KEY, 3, 13, "Produce", "produce"),
    Api(1, 4, 18, "Fetch", "fetch"),
    Api(2, 1, 11, "ListOffsets", "list_offsets"),
    Api(3, 0, 13, "Metadata", "metadata"),
    Api(8, 2, 10, "OffsetCommit", "offsets", needs=OFFSETS_TOPIC),
    Api(9, 1, 10, "OffsetFetch", "offsets"),
    Api(10, 0, 6, "FindCoordinator", "cluster"),
    Api(11, 0, 9, "JoinGroup", "groups", needs=OFFSETS_TOPIC),
    Api(12, 0, 4, "Heartbeat", "groups"),
    Api(13, 0, 5, "LeaveGroup", "groups", needs=OFFSETS_TOPIC),
    Api(14, 0, 5, "SyncGroup", "groups", needs=OFFSETS_TOPIC),
    Api(15, 0, 6, "DescribeGroups", "group_admin"),
    Api(16, 0, 5, "ListGroups", "group_admin"),
    Api(17, 0, 1, "SaslHandshake", "sasl"),
    Api(API_VERSIONS_KEY, 0, 4, "ApiVersions", "api_versions"),
    Api(19, 2, 7, "CreateTopics", "topics"),
    Api(20, 1, 6, "DeleteTopics", "topics"),
    Api(21, 0, 2, "DeleteRecords", "delete_records"),
    Api(22, 0, 5, "InitProducerId", "init_producer_id"),
    Api(23, 2, 4, "OffsetForLeaderEpoch", "leader_epoch"),
    Api(24, 0, 5, "AddPartitionsToTxn", "transactions"),
    Api(25, 0, 4, "AddOffsetsToTxn", "transactions", needs=OFFSETS_TOPIC),
    Api(26, 0, 5, "EndTxn", "transactions"),
    Api(27, 1, 2, "WriteTxnMarkers", "transaction_admin"),
    Api(28, 0, 5, "TxnOffsetCommit", "txn_offset_commit", needs=OFFSETS_TOPIC),
    Api(29, 1, 3, "DescribeAcls", "access"),
    Api(30, 1, 3, "CreateAcls", "access"),
    Api(31, 1, 3, "DeleteAcls", "access"),
    Api(32, 1, 4, "DescribeConfigs", "configs"),
    Api(33, 0, 2, "AlterConfigs", "alter_configs"),
    Api(34, 1, 2, "AlterReplicaLogDirs", "log_dirs"),
    Api(35, 1, 5, "DescribeLogDirs", "log_dirs"),
    Api(36, 0, 2, "SaslAuthenticate", "sasl"),
    Api(37, 0, 3, "CreatePartitions", "partitions"),
    Api(42, 0, 2, "DeleteGroups", "group_admin"),
    Api(43, 0, 2, "ElectLeaders", "replicas"),
    Api(44, 0, 1, "IncrementalAlterConfigs", "alter_configs"),
    Api(45, 0, 1, "AlterPartitionReassignments", "replicas"),
    Api(46, 0, 0, "ListPartitionReassignments", "replicas"),
    Api(47, 0, 0, "OffsetDelete", "group_admin"),
    Api(48, 0, 1, "DescribeClientQuotas", "access"),
    Api(50, 0, 0, "DescribeUserScramCredentials", "scram_credentials"),
    Api(51, 0, 0, "AlterUserScramCredentials", "scram_credentials"),
    Api(55, 0, 2, "DescribeQuorum", "quorum"),
    Api(60, 0, 2, "DescribeCluster", "cluster"),
    Api(61, 0, 0, "DescribeProducers", "transaction_admin"),
    Api(65, 0, 0, "DescribeTransactions", "transaction_admin"),
    Api(66, 0, 2, "ListTransactions", "transaction_admin"),
    Api(68, 0, 1, "ConsumerGroupHeartbeat", "consumer_groups", needs=OFFSETS_TOPIC),
    Api(69, 0, 1, "ConsumerGroupDescribe", "consumer_groups"),
    Api(74, 0, 1, "ListConfigResources", "configs"),
    Api(75, 0, 0, "DescribeTopicPartitions", "topic_partitions"),
    Api(76, 1, 1, "ShareGroupHeartbeat", "share_groups", needs=OFFSETS_TOPIC),
    Api(77, 1, 1, "ShareGroupDescribe", "share_groups"),
    Api(78, 1, 2, "ShareFetch", "share_fetch", needs=SHARE_STATE_TOPIC),
    Api(79, 1, 2, "ShareAcknowledge", "share_acknowledge", needs=SHARE_STATE_TOPIC),
    Api(90, 0, 1, "DescribeShareGroupOffsets", "share_offsets"),
    Api(91, 0, 0, "AlterShareGroupOffsets", "share_offsets", needs=(OFFSETS_TOPIC, SHARE_STATE_TOPIC)),
    Api(92, 0, 0, "DeleteShareGroupOffsets", "share_offsets", needs=SHARE_STATE_TOPIC),
)

APIS: Final = {api.key: api for api in _ALL}
PRODUCE_VERSION_LISTED: Final = 0
"""Kafka lists versions of Produce that it refuses, or librdkafka would not compress (KAFKA-18659)."""
OFFERED: Final = tuple(
    (
        api.key,
        PRODUCE_VERSION_LISTED if api.key == PRODUCE_KEY else api.version_first,
        api.version_last,
    )
    for api in _ALL
)
