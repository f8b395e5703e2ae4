"""DescribeGroups, ListGroups, DeleteGroups, OffsetDelete: groups of all kinds, as tools see them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kio.schema.errors import ErrorCode

from headrace.errors import HeadraceError
from headrace.kafka.answer import Pending
from headrace.kafka.audit import audit, listing
from headrace.kafka.groups.share.state import SHARE_PROTOCOL
from headrace.kafka.groups.state import Group, GroupState
from headrace.kafka.groups.subscription import CONSUMER_PROTOCOL
from headrace.kafka.handlers.produce import error_code_of
from headrace.kafka.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from headrace.kafka.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)
from headrace.kafka.messages.list_groups import ListedGroup, ListGroupsResponse
from headrace.kafka.messages.offset_delete import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.kafka.groups.coordinator import GroupCoordinator
    from headrace.kafka.groups.offsets import OffsetForgotten
    from headrace.kafka.messages.delete_groups import DeleteGroupsRequest
    from headrace.kafka.messages.describe_groups import DescribeGroupsRequest
    from headrace.kafka.messages.list_groups import ListGroupsRequest
    from headrace.kafka.messages.offset_delete import OffsetDeleteRequest
    from headrace.kafka.services import Call, Services

CLASSIC_TYPE: Final = "classic"
CONSUMER_TYPE: Final = "consumer"
SHARE_TYPE: Final = "share"
FIRST_VERSION_THAT_NAMES_UNKNOWN: Final = 6


def handle_describe_groups(call: Call, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    """Describe groups and their members, each group once however often it is named."""
    services = call.services
    return DescribeGroupsResponse(
        groups=tuple(_describe(services, call, group_id) for group_id in dict.fromkeys(request.groups))
    )


def handle_list_groups(call: Call, request: ListGroupsRequest) -> ListGroupsResponse:
    """List groups by state and type."""
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    coordinator = call.services.groups.coordinator
    listed = (_listed(coordinator, group_id) for group_id in coordinator.group_ids())
    return ListGroupsResponse(
        groups=tuple(
            group
            for group in listed
            if (not states or group.group_state.lower() in states)
            and (not types or group.group_type in types)
        )
    )


def handle_delete_groups(
    call: Call, request: DeleteGroupsRequest
) -> DeleteGroupsResponse | Pending[DeleteGroupsResponse]:
    """Forget groups that have no members; the answer waits until that is durable."""
    services = call.services
    groups = services.groups
    records: list[OffsetForgotten] = []
    results = []
    for group_id in dict.fromkeys(request.groups_names):
        forgotten, error_code = groups.coordinator.handle_delete(group_id)
        records += forgotten
        results.append(DeletableGroupResult(group_id=group_id, error_code=error_code))
    pending: Pending[DeleteGroupsResponse] = Pending()

    def on_durable(error: HeadraceError | None) -> None:
        if error is not None:
            pending.resolve(_none_deleted(request, error_code_of(error)))
            return
        for result in results:
            if result.error_code is ErrorCode.none:
                audit(call, "group.delete", group=result.group_id)
        pending.resolve(DeleteGroupsResponse(results=tuple(results)))

    try:
        for result in results:
            if result.error_code is ErrorCode.none:
                if result.group_id in groups.coordinator.share_groups:
                    services.shares.group_deleted(result.group_id)
                groups.carry_out(groups.coordinator.handle_end(result.group_id))
        groups.write(records, _after_positions(services, on_durable))
    except HeadraceError as error:
        return _none_deleted(request, error_code_of(error))
    return pending


def _after_positions(
    services: Services, then: Callable[[HeadraceError | None], None]
) -> Callable[[HeadraceError | None], None]:
    """A callback that waits for what was written of share groups' positions, too."""
    return lambda error: then(error) if error is not None else services.shares.when_durable(then)


def handle_offset_delete(
    call: Call, request: OffsetDeleteRequest
) -> OffsetDeleteResponse | Pending[OffsetDeleteResponse]:
    """Forget offsets of topics that no member reads; the answer waits until that is durable."""
    groups = call.services.groups
    error_code = groups.coordinator.check_delete_offsets(request.group_id)
    if error_code is not ErrorCode.none:
        return OffsetDeleteResponse(error_code=error_code)
    asked = [(topic.name, each.partition_index) for topic in request.topics for each in topic.partitions]
    records, errors = groups.coordinator.handle_delete_offsets(request.group_id, asked)
    response = OffsetDeleteResponse(
        topics=tuple(
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=tuple(
                    OffsetDeleteResponsePartition(
                        partition_index=each.partition_index,
                        error_code=errors[topic.name, each.partition_index],
                    )
                    for each in topic.partitions
                ),
            )
            for topic in request.topics
        )
    )
    pending: Pending[OffsetDeleteResponse] = Pending()

    def on_durable(error: HeadraceError | None) -> None:
        if error is not None:
            pending.resolve(OffsetDeleteResponse(error_code=error_code_of(error)))
            return
        if records:
            listed = listing(f"{each.topic}-{each.partition}" for each in records)
            audit(call, "group.delete-offsets", group=request.group_id, partitions=listed)
        pending.resolve(response)

    try:
        groups.write(records, on_durable)
    except HeadraceError as error:
        return OffsetDeleteResponse(error_code=error_code_of(error))
    return pending


def _listed(coordinator: GroupCoordinator, group_id: str) -> ListedGroup:
    consumer_group = coordinator.consumer_groups.get(group_id)
    if consumer_group is not None:
        return ListedGroup(
            group_id=group_id,
            protocol_type=CONSUMER_PROTOCOL,
            group_state=consumer_group.state.value,
            group_type=CONSUMER_TYPE,
        )
    share_group = coordinator.share_groups.get(group_id)
    if share_group is not None:
        return ListedGroup(
            group_id=group_id,
            protocol_type=SHARE_PROTOCOL,
            group_state=share_group.state.value,
            group_type=SHARE_TYPE,
        )
    group = _classic_group(coordinator, group_id)
    return ListedGroup(
        group_id=group_id,
        protocol_type=group.protocol_type or "",
        group_state=group.state.value,
        group_type=CLASSIC_TYPE,
    )


def _classic_group(coordinator: GroupCoordinator, group_id: str) -> Group:
    """The group; one that has only offsets is empty."""
    return coordinator.groups.get(group_id, Group(group_id=group_id))


def _describe(services: Services, call: Call, group_id: str) -> DescribedGroup:
    coordinator = services.groups.coordinator
    if group_id in coordinator.consumer_groups or group_id in coordinator.share_groups:
        return _unknown(call, group_id, "is not a classic group.")
    if group_id not in coordinator:
        return _unknown(call, group_id, "not found.")
    group = _classic_group(coordinator, group_id)
    is_stable = group.state is GroupState.STABLE
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if is_stable else "",
        members=tuple(
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata_for(group.protocol_name) if is_stable else b"",
                member_assignment=member.assignment,
            )
            for member in group.members.values()
        ),
    )


def _unknown(call: Call, group_id: str, what: str) -> DescribedGroup:
    is_named = call.api_version >= FIRST_VERSION_THAT_NAMES_UNKNOWN
    return DescribedGroup(
        error_code=ErrorCode.group_id_not_found if is_named else ErrorCode.none,
        error_message=f"Group {group_id} {what}" if is_named else None,
        group_id=group_id,
        group_state=GroupState.DEAD.value,
        protocol_type="",
        protocol_data="",
        members=(),
    )


def _none_deleted(request: DeleteGroupsRequest, error_code: ErrorCode) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=tuple(
            DeletableGroupResult(group_id=group_id, error_code=error_code)
            for group_id in request.groups_names
        )
    )
