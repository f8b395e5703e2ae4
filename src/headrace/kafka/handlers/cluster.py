"""DescribeCluster and FindCoordinator: there is one broker, and it does everything."""

from __future__ import annotations

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
FIRST_VERSION_WITH_KEYS: Final = 4


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
    """Name the coordinator of groups and transactions. Those of share groups are refused: there are none."""
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
    if key_type not in {GROUP, TRANSACTION}:
        return Coordinator(
            key=key,
            node_id=-1,
            host="",
            port=-1,
            error_code=ErrorCode.invalid_request,
            error_message="this broker coordinates consumer groups and transactions; it has no share groups",
        )
    return Coordinator(key=key, node_id=NODE_ID, host=call.address.host, port=call.address.port)
