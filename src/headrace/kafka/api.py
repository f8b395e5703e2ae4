"""Which APIs and versions are offered, and who handles them.

The ranges are those of Apache Kafka 4.3, as far as this broker implements the API at all. A request for
anything else closes its connection, as Kafka does: clients ask for ApiVersions first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headrace.kafka.codec.frame import API_VERSIONS_KEY
from headrace.kafka.handlers.access import (
    handle_create_acls,
    handle_delete_acls,
    handle_describe_acls,
    handle_describe_client_quotas,
)
from headrace.kafka.handlers.alter_configs import handle_alter_configs, handle_incremental_alter_configs
from headrace.kafka.handlers.api_versions import answer_api_versions
from headrace.kafka.handlers.cluster import handle_describe_cluster, handle_find_coordinator
from headrace.kafka.handlers.configs import handle_describe_configs, handle_list_config_resources
from headrace.kafka.handlers.consumer_groups import (
    handle_consumer_group_describe,
    handle_consumer_group_heartbeat,
)
from headrace.kafka.handlers.delete_records import handle_delete_records
from headrace.kafka.handlers.fetch import handle_fetch
from headrace.kafka.handlers.group_admin import (
    handle_delete_groups,
    handle_describe_groups,
    handle_list_groups,
    handle_offset_delete,
)
from headrace.kafka.handlers.groups import (
    handle_heartbeat,
    handle_join_group,
    handle_leave_group,
    handle_sync_group,
)
from headrace.kafka.handlers.init_producer_id import handle_init_producer_id
from headrace.kafka.handlers.internal_topic import needing
from headrace.kafka.handlers.leader_epoch import handle_offset_for_leader_epoch
from headrace.kafka.handlers.list_offsets import handle_list_offsets
from headrace.kafka.handlers.log_dirs import handle_alter_replica_log_dirs, handle_describe_log_dirs
from headrace.kafka.handlers.metadata import handle_metadata
from headrace.kafka.handlers.offsets import handle_offset_commit, handle_offset_fetch
from headrace.kafka.handlers.partitions import handle_create_partitions
from headrace.kafka.handlers.produce import handle_produce
from headrace.kafka.handlers.replicas import (
    handle_alter_partition_reassignments,
    handle_elect_leaders,
    handle_list_partition_reassignments,
)
from headrace.kafka.handlers.sasl import handle_sasl_authenticate, handle_sasl_handshake
from headrace.kafka.handlers.scram_credentials import (
    handle_alter_user_scram_credentials,
    handle_describe_user_scram_credentials,
)
from headrace.kafka.handlers.topic_partitions import handle_describe_topic_partitions
from headrace.kafka.handlers.topics import handle_create_topics, handle_delete_topics
from headrace.kafka.handlers.transaction_admin import (
    handle_describe_producers,
    handle_describe_transactions,
    handle_list_transactions,
    handle_write_txn_markers,
)
from headrace.kafka.handlers.transactions import (
    handle_add_offsets_to_txn,
    handle_add_partitions_to_txn,
    handle_end_txn,
)
from headrace.kafka.handlers.txn_offset_commit import handle_txn_offset_commit
from headrace.kafka.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from headrace.kafka.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from headrace.kafka.messages.alter_configs import AlterConfigsRequest
from headrace.kafka.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from headrace.kafka.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from headrace.kafka.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from headrace.kafka.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from headrace.kafka.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from headrace.kafka.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from headrace.kafka.messages.create_acls import CreateAclsRequest
from headrace.kafka.messages.create_partitions import CreatePartitionsRequest
from headrace.kafka.messages.create_topics import CreateTopicsRequest
from headrace.kafka.messages.delete_acls import DeleteAclsRequest
from headrace.kafka.messages.delete_groups import DeleteGroupsRequest
from headrace.kafka.messages.delete_records import DeleteRecordsRequest
from headrace.kafka.messages.delete_topics import DeleteTopicsRequest
from headrace.kafka.messages.describe_acls import DescribeAclsRequest
from headrace.kafka.messages.describe_client_quotas import DescribeClientQuotasRequest
from headrace.kafka.messages.describe_cluster import DescribeClusterRequest
from headrace.kafka.messages.describe_configs import DescribeConfigsRequest
from headrace.kafka.messages.describe_groups import DescribeGroupsRequest
from headrace.kafka.messages.describe_log_dirs import DescribeLogDirsRequest
from headrace.kafka.messages.describe_producers import DescribeProducersRequest
from headrace.kafka.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from headrace.kafka.messages.describe_transactions import DescribeTransactionsRequest
from headrace.kafka.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from headrace.kafka.messages.elect_leaders import ElectLeadersRequest
from headrace.kafka.messages.end_txn import EndTxnRequest
from headrace.kafka.messages.fetch import FetchRequest
from headrace.kafka.messages.find_coordinator import FindCoordinatorRequest
from headrace.kafka.messages.heartbeat import HeartbeatRequest
from headrace.kafka.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from headrace.kafka.messages.init_producer_id import InitProducerIdRequest
from headrace.kafka.messages.join_group import JoinGroupRequest
from headrace.kafka.messages.leave_group import LeaveGroupRequest
from headrace.kafka.messages.list_config_resources import ListConfigResourcesRequest
from headrace.kafka.messages.list_groups import ListGroupsRequest
from headrace.kafka.messages.list_offsets import ListOffsetsRequest
from headrace.kafka.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from headrace.kafka.messages.list_transactions import ListTransactionsRequest
from headrace.kafka.messages.metadata import MetadataRequest
from headrace.kafka.messages.offset_commit import OffsetCommitRequest
from headrace.kafka.messages.offset_delete import OffsetDeleteRequest
from headrace.kafka.messages.offset_fetch import OffsetFetchRequest
from headrace.kafka.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from headrace.kafka.messages.produce import ProduceRequest
from headrace.kafka.messages.sasl_authenticate import SaslAuthenticateRequest
from headrace.kafka.messages.sasl_handshake import SaslHandshakeRequest
from headrace.kafka.messages.sync_group import SyncGroupRequest
from headrace.kafka.messages.txn_offset_commit import TxnOffsetCommitRequest
from headrace.kafka.messages.write_txn_markers import WriteTxnMarkersRequest
from headrace.kafka.services import OFFSETS_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.kafka.codec.shape import MessageClass
    from headrace.kafka.services import Call

PRODUCE_KEY: Final = 0


@dataclass(frozen=True, slots=True)
class Api:
    """One API: the versions on offer, the class of its requests, and the handler."""

    key: int
    version_first: int
    version_last: int
    request: MessageClass
    handler: Callable[[Call, Any], Any]

    def offers(self, version: int) -> bool:
        """Whether the version is on offer."""
        return self.version_first <= version <= self.version_last


def handle_api_versions(call: Call, request: ApiVersionsRequest) -> ApiVersionsResponse:
    """Say what is offered."""
    return answer_api_versions(call, request, OFFERED)


_ALL: Final = (
    Api(PRODUCE_KEY, 3, 13, ProduceRequest, handle_produce),
    Api(1, 4, 18, FetchRequest, handle_fetch),
    Api(2, 1, 11, ListOffsetsRequest, handle_list_offsets),
    Api(3, 0, 13, MetadataRequest, handle_metadata),
    Api(8, 2, 10, OffsetCommitRequest, needing(OFFSETS_TOPIC, handle_offset_commit)),
    Api(9, 1, 10, OffsetFetchRequest, handle_offset_fetch),
    Api(10, 0, 6, FindCoordinatorRequest, handle_find_coordinator),
    Api(11, 0, 9, JoinGroupRequest, handle_join_group),
    Api(12, 0, 4, HeartbeatRequest, handle_heartbeat),
    Api(13, 0, 5, LeaveGroupRequest, handle_leave_group),
    Api(14, 0, 5, SyncGroupRequest, handle_sync_group),
    Api(15, 0, 6, DescribeGroupsRequest, handle_describe_groups),
    Api(16, 0, 5, ListGroupsRequest, handle_list_groups),
    Api(17, 0, 1, SaslHandshakeRequest, handle_sasl_handshake),
    Api(API_VERSIONS_KEY, 0, 4, ApiVersionsRequest, handle_api_versions),
    Api(19, 2, 7, CreateTopicsRequest, handle_create_topics),
    Api(20, 1, 6, DeleteTopicsRequest, handle_delete_topics),
    Api(21, 0, 2, DeleteRecordsRequest, handle_delete_records),
    Api(22, 0, 5, InitProducerIdRequest, handle_init_producer_id),
    Api(23, 2, 4, OffsetForLeaderEpochRequest, handle_offset_for_leader_epoch),
    Api(24, 0, 5, AddPartitionsToTxnRequest, handle_add_partitions_to_txn),
    Api(25, 0, 4, AddOffsetsToTxnRequest, needing(OFFSETS_TOPIC, handle_add_offsets_to_txn)),
    Api(26, 0, 5, EndTxnRequest, handle_end_txn),
    Api(27, 1, 2, WriteTxnMarkersRequest, handle_write_txn_markers),
    Api(28, 0, 5, TxnOffsetCommitRequest, needing(OFFSETS_TOPIC, handle_txn_offset_commit)),
    Api(29, 1, 3, DescribeAclsRequest, handle_describe_acls),
    Api(30, 1, 3, CreateAclsRequest, handle_create_acls),
    Api(31, 1, 3, DeleteAclsRequest, handle_delete_acls),
    Api(32, 1, 4, DescribeConfigsRequest, handle_describe_configs),
    Api(33, 0, 2, AlterConfigsRequest, handle_alter_configs),
    Api(34, 1, 2, AlterReplicaLogDirsRequest, handle_alter_replica_log_dirs),
    Api(35, 1, 5, DescribeLogDirsRequest, handle_describe_log_dirs),
    Api(36, 0, 2, SaslAuthenticateRequest, handle_sasl_authenticate),
    Api(37, 0, 3, CreatePartitionsRequest, handle_create_partitions),
    Api(42, 0, 2, DeleteGroupsRequest, handle_delete_groups),
    Api(43, 0, 2, ElectLeadersRequest, handle_elect_leaders),
    Api(44, 0, 1, IncrementalAlterConfigsRequest, handle_incremental_alter_configs),
    Api(45, 0, 1, AlterPartitionReassignmentsRequest, handle_alter_partition_reassignments),
    Api(46, 0, 0, ListPartitionReassignmentsRequest, handle_list_partition_reassignments),
    Api(47, 0, 0, OffsetDeleteRequest, handle_offset_delete),
    Api(48, 0, 1, DescribeClientQuotasRequest, handle_describe_client_quotas),
    Api(50, 0, 0, DescribeUserScramCredentialsRequest, handle_describe_user_scram_credentials),
    Api(51, 0, 0, AlterUserScramCredentialsRequest, handle_alter_user_scram_credentials),
    Api(60, 0, 2, DescribeClusterRequest, handle_describe_cluster),
    Api(61, 0, 0, DescribeProducersRequest, handle_describe_producers),
    Api(65, 0, 0, DescribeTransactionsRequest, handle_describe_transactions),
    Api(66, 0, 2, ListTransactionsRequest, handle_list_transactions),
    Api(68, 0, 1, ConsumerGroupHeartbeatRequest, handle_consumer_group_heartbeat),
    Api(69, 0, 1, ConsumerGroupDescribeRequest, handle_consumer_group_describe),
    Api(74, 0, 1, ListConfigResourcesRequest, handle_list_config_resources),
    Api(75, 0, 0, DescribeTopicPartitionsRequest, handle_describe_topic_partitions),
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
