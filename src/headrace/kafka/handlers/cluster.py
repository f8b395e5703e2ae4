"""DescribeCluster and FindCoordinator: there is one broker, and it does everything."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from kio.schema.errors import ErrorCode

from headrace.kafka.authorized_operations import CLUSTER_OPERATIONS, NOT_ASKED
from headrace.kafka.messages.describe_cluster import DescribeClusterBroker, DescribeClusterResponse
from headrace.kafka.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from headrace.kafka.services import NODE_ID

if TYPE_CHECKING:
    from headrace.kafka.messages.describe_cluster import DescribeClusterRequest
    from headrace.kafka.messages.find_coordinator import FindCoordinatorRequest
    from headrace.kafka.services import Call

BROKER_ENDPOINTS: Final = 1
GROUP: Final = 0
TRANSACTION: Final = 1
SHARE: Final = 2
FIRST_VERSION_WITH_KEYS: Final = 4
FIRST_VERSION_WITH_SHARE: Final = 6
SHARE_KEY: Final = re.compile(
    r"(?P<group>.*\S.*):[A-Za-z0-9_-]{22}(?:==)?:(?P<partition>[+-]?[0-9]+):*", re.DOTALL
)
"""A group's id, which may have colons itself, a topic's id as Kafka writes it, and a partition's number."""
PARTITION_LIMIT: Final = 2**31


def handle_describe_cluster(call: Call, request: DescribeClusterRequest) -> DescribeClusterResponse:
    """Describe the broker."""
    services = call.services
    if request.endpoint_type != BROKER_ENDPOINTS:
        return DescribeClusterResponse(
            error_code=ErrorCode.mismatched_endpoint_type,
            error_message="this is a broker; there are no controllers to ask for",
            cluster_id="",
            brokers=(),
        )
    broker = DescribeClusterBroker(broker_id=NODE_ID, host=call.address.host, port=call.address.port)
    return DescribeClusterResponse(
        cluster_id=services.store.cluster_id,
        controller_id=NODE_ID,
        brokers=(broker,),
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )


def handle_find_coordinator(call: Call, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    """Name the coordinator of a group, a transaction or a share group's place in a partition."""
    if call.api_version >= FIRST_VERSION_WITH_KEYS:
        found = tuple(_coordinator(call, request.key_type, key) for key in request.coordinator_keys)
        return FindCoordinatorResponse(coordinators=found)
    one = _coordinator(call, request.key_type, request.key)
    return FindCoordinatorResponse(
        error_code=one.error_code,
        error_message=one.error_message,
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )


def _coordinator(call: Call, key_type: int, key: str) -> Coordinator:
    mistake = _mistake(call, key_type, key)
    if mistake is not None:
        return Coordinator(
            key=key,
            node_id=-1,
            host="",
            port=-1,
            error_code=ErrorCode.invalid_request,
            error_message=mistake,
        )
    return Coordinator(key=key, node_id=NODE_ID, host=call.address.host, port=call.address.port)


def _mistake(call: Call, key_type: int, key: str) -> str | None:
    """What is wrong with a key, if anything is."""
    if key_type in {GROUP, TRANSACTION}:
        return None
    if key_type != SHARE:
        return (
            f"there are no coordinators of type {key_type}: 0 is groups, 1 transactions, 2 share partitions"
        )
    if call.api_version < FIRST_VERSION_WITH_SHARE:
        return f"coordinators of share partitions are found by version {FIRST_VERSION_WITH_SHARE} or later"
    match = SHARE_KEY.fullmatch(key)
    if match is None or not -PARTITION_LIMIT <= int(match["partition"]) < PARTITION_LIMIT:
        return f"the key of a share partition is group:topicId:partition, not {key!r}"
    return None
