"""DescribeGroups, ListGroups, DeleteGroups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kio.schema.errors import ErrorCode

from headrace.errors import HeadraceError
from headrace.kafka.answer import Pending
from headrace.kafka.groups.state import Group, GroupState
from headrace.kafka.handlers.produce import error_code_of
from headrace.kafka.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from headrace.kafka.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)
from headrace.kafka.messages.list_groups import ListedGroup, ListGroupsResponse

if TYPE_CHECKING:
    from headrace.kafka.groups.offsets import OffsetForgotten
    from headrace.kafka.messages.delete_groups import DeleteGroupsRequest
    from headrace.kafka.messages.describe_groups import DescribeGroupsRequest
    from headrace.kafka.messages.list_groups import ListGroupsRequest
    from headrace.kafka.services import Call, Services

GROUP_TYPE: Final = "classic"
FIRST_VERSION_THAT_NAMES_UNKNOWN: Final = 6


def handle_describe_groups(call: Call, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    """Describe groups and their members, each group once however often it is named."""
    services = call.services
    return DescribeGroupsResponse(
        groups=tuple(_describe(services, call, group_id) for group_id in dict.fromkeys(request.groups))
    )


def handle_list_groups(call: Call, request: ListGroupsRequest) -> ListGroupsResponse:
    """List groups by state and type."""
    services = call.services
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    groups = (_group(services, group_id) for group_id in services.groups.coordinator.group_ids())
    return ListGroupsResponse(
        groups=tuple(
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type or "",
                group_state=group.state.value,
                group_type=GROUP_TYPE,
            )
            for group in groups
            if (not states or group.state.value.lower() in states) and (not types or GROUP_TYPE in types)
        )
    )


def handle_delete_groups(
    call: Call, request: DeleteGroupsRequest
) -> DeleteGroupsResponse | Pending[DeleteGroupsResponse]:
    """Forget groups that have no members; the answer waits until that is durable."""
    services = call.services
    records: list[OffsetForgotten] = []
    results = []
    for group_id in request.groups_names:
        forgotten, error_code = services.groups.coordinator.handle_delete(group_id)
        records += forgotten
        results.append(DeletableGroupResult(group_id=group_id, error_code=error_code))
    pending: Pending[DeleteGroupsResponse] = Pending()

    def on_durable(error: HeadraceError | None) -> None:
        pending.resolve(
            DeleteGroupsResponse(results=tuple(results))
            if error is None
            else _none_deleted(request, error_code_of(error))
        )

    try:
        services.groups.write(records, on_durable)
    except HeadraceError as error:
        return _none_deleted(request, error_code_of(error))
    return pending


def _group(services: Services, group_id: str) -> Group:
    """The group; one that has only offsets is empty."""
    return services.groups.coordinator.groups.get(group_id, Group(group_id=group_id))


def _describe(services: Services, call: Call, group_id: str) -> DescribedGroup:
    coordinator = services.groups.coordinator
    if group_id not in coordinator.groups and group_id not in coordinator.offsets:
        return _unknown(call, group_id)
    group = _group(services, group_id)
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


def _unknown(call: Call, group_id: str) -> DescribedGroup:
    is_named = call.api_version >= FIRST_VERSION_THAT_NAMES_UNKNOWN
    return DescribedGroup(
        error_code=ErrorCode.group_id_not_found if is_named else ErrorCode.none,
        error_message=f"there is no group {group_id}" if is_named else None,
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
