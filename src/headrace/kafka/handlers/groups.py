"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup: the life of a member."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kio.schema.errors import ErrorCode

from headrace.errors import HeadraceError
from headrace.kafka.answer import Pending
from headrace.kafka.groups.membership import Joiner
from headrace.kafka.groups.rebalance import join_refused, sync_refused
from headrace.kafka.messages.heartbeat import HeartbeatResponse
from headrace.kafka.messages.leave_group import LeaveGroupResponse, MemberIdentity

if TYPE_CHECKING:
    from headrace.kafka.messages.heartbeat import HeartbeatRequest
    from headrace.kafka.messages.join_group import JoinGroupRequest, JoinGroupResponse
    from headrace.kafka.messages.leave_group import LeaveGroupRequest
    from headrace.kafka.messages.sync_group import SyncGroupRequest, SyncGroupResponse
    from headrace.kafka.services import Call

MEMBER_NAME_LENGTH_MAX: Final = 100
"""How much of a client's name goes into the ids of its members, which other members are told."""
FIRST_VERSION_WITH_KNOWN_ID: Final = 4
FIRST_VERSION_THAT_SKIPS_ASSIGNMENT: Final = 9
FIRST_VERSION_THAT_LEAVES_TOGETHER: Final = 3


def handle_join_group(
    call: Call, request: JoinGroupRequest
) -> JoinGroupResponse | Pending[JoinGroupResponse]:
    """Let a member join; the answer waits for the others."""
    services = call.services
    pending: Pending[JoinGroupResponse] = Pending()
    name = (request.group_instance_id or call.client_id)[:MEMBER_NAME_LENGTH_MAX]
    joiner = Joiner(
        token=pending,
        new_member_id=f"{name}-{call.services.new_id()}",
        must_know_id=call.api_version >= FIRST_VERSION_WITH_KNOWN_ID,
        can_skip_assignment=call.api_version >= FIRST_VERSION_THAT_SKIPS_ASSIGNMENT,
        client_id=call.client_id,
        client_host=f"/{call.host}",
    )
    groups = services.groups
    outcome, response = groups.coordinator.handle_join(request, joiner, groups.now_ms())
    try:
        groups.carry_out(outcome)
    except HeadraceError:
        return join_refused(ErrorCode.coordinator_not_available, request.member_id)
    return pending if response is None else groups.answer(request.group_id, response)


def handle_sync_group(
    call: Call, request: SyncGroupRequest
) -> SyncGroupResponse | Pending[SyncGroupResponse]:
    """Give a member its assignment; the answer waits for the leader."""
    services = call.services
    pending: Pending[SyncGroupResponse] = Pending()
    groups = services.groups
    outcome, response = groups.coordinator.handle_sync(request, pending, groups.now_ms())
    try:
        groups.carry_out(outcome)
    except HeadraceError:
        return sync_refused(ErrorCode.coordinator_not_available)
    return pending if response is None else groups.answer(request.group_id, response)


def handle_heartbeat(call: Call, request: HeartbeatRequest) -> HeartbeatResponse | Pending[HeartbeatResponse]:
    """Note that a member is alive."""
    services = call.services
    groups = services.groups
    outcome, error_code = groups.coordinator.handle_heartbeat(request, groups.now_ms())
    groups.carry_out(outcome)
    return groups.answer(request.group_id, HeartbeatResponse(error_code=error_code))


def handle_leave_group(
    call: Call, request: LeaveGroupRequest
) -> LeaveGroupResponse | Pending[LeaveGroupResponse]:
    """Let members go."""
    services = call.services
    is_alone = call.api_version < FIRST_VERSION_THAT_LEAVES_TOGETHER
    members = (MemberIdentity(member_id=request.member_id),) if is_alone else request.members
    groups = services.groups
    outcome, responses = groups.coordinator.handle_leave(request.group_id, members, groups.now_ms())
    try:
        groups.carry_out(outcome)
    except HeadraceError:
        return LeaveGroupResponse(error_code=ErrorCode.coordinator_not_available, members=())
    error_code = responses[0].error_code if is_alone else ErrorCode.none
    return groups.answer(request.group_id, LeaveGroupResponse(error_code=error_code, members=responses))
