"""What members ask for: to join, to be given an assignment, to stay, to leave. Pure functions.

Each returns a transition and the response for the caller, or None where the caller has to wait: then a
later transition carries the reply for its token.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.kafka.groups.rebalance import (
    Reply,
    Transition,
    complete_join_if_ready,
    join_answer,
    join_refused,
    prepare_rebalance,
    remove_members,
    store_assignments,
    sync_answer,
    sync_refused,
    without_idle_deadline,
)
from headrace.kafka.groups.state import Group, GroupState, Member, Protocol, Token

if TYPE_CHECKING:
    from headrace.kafka.messages.join_group import JoinGroupRequest, JoinGroupResponse
    from headrace.kafka.messages.sync_group import SyncGroupRequest, SyncGroupResponse

    Joined = tuple[Transition, JoinGroupResponse | None]
    Synced = tuple[Transition, SyncGroupResponse | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Joiner:
    """What a request to join brings along besides its fields."""

    token: Token
    new_member_id: str
    """The id that the member gets if it has none."""
    must_know_id: bool
    """Whether a new member is first given its id and has to ask again: a lost answer then leaves no ghost."""
    can_skip_assignment: bool = False
    client_id: str = ""
    client_host: str = ""


def join(
    group: Group, request: JoinGroupRequest, joiner: Joiner, *, now_ms: int, initial_delay_ms: int
) -> Joined:
    """Let a member join, or join again."""
    if not _is_compatible(group, request):
        return _refuse_join(group, ErrorCode.inconsistent_group_protocol, request.member_id)
    if request.group_instance_id is not None:
        return _join_static(group, request, joiner, now_ms, initial_delay_ms)
    if not request.member_id and joiner.must_know_id:
        deadline_ms = now_ms + request.session_timeout_ms
        given = group.with_pending(joiner.new_member_id, deadline_ms)
        return Transition(given), join_refused(ErrorCode.member_id_required, joiner.new_member_id)
    if not request.member_id or request.member_id in group.pending_ids:
        return _join_new(group, request, joiner, now_ms, initial_delay_ms)
    member = group.members.get(request.member_id)
    if member is None or member.instance_id is not None:
        return _refuse_join(group, ErrorCode.unknown_member_id, request.member_id)
    return _join_again(group, member, request, joiner, now_ms)


def sync(group: Group, request: SyncGroupRequest, token: Token, now_ms: int) -> Synced:
    """Give a member its assignment, once the leader has sent it."""
    error_code = check_member(group, request.member_id, request.group_instance_id, request.generation_id)
    if error_code is ErrorCode.none:
        error_code = _check_sync(group, request)
    if error_code is not ErrorCode.none:
        return Transition(group), sync_refused(error_code)
    member = replace(group.members[request.member_id].seen(now_ms), has_synced=True)
    if group.state is GroupState.STABLE:
        synced = without_idle_deadline(group.with_member(member))
        return Transition(synced), sync_answer(synced, member)
    forgotten = _forgotten(member.sync_token, sync_refused(ErrorCode.rebalance_in_progress))
    waiting = group.with_member(replace(member, sync_token=token))
    if request.member_id != group.leader_id:
        return Transition(waiting, forgotten), None
    assignments = {each.member_id: each.assignment for each in request.assignments}
    return Transition(waiting, forgotten).then(store_assignments(waiting, assignments, now_ms)), None


def heartbeat(
    group: Group, member_id: str, instance_id: str | None, generation_id: int, now_ms: int
) -> tuple[Transition, ErrorCode]:
    """Note that a member is alive, and tell it whether it has to join again."""
    error_code = check_member(group, member_id, instance_id, generation_id)
    if error_code is not ErrorCode.none:
        return Transition(group), error_code
    alive = Transition(group.with_member(group.members[member_id].seen(now_ms)))
    is_preparing = group.state is GroupState.PREPARING_REBALANCE
    return alive, ErrorCode.rebalance_in_progress if is_preparing else ErrorCode.none


def leave(group: Group, member_id: str, instance_id: str | None, now_ms: int) -> tuple[Transition, ErrorCode]:
    """Let a member go. A static one may be named by its instance id alone."""
    if member_id in group.pending_ids:
        rest = group.without_pending({member_id})
        return complete_join_if_ready(rest, now_ms), ErrorCode.none
    if not member_id and (static := group.member_with_instance(instance_id)) is not None:
        member_id = static.member_id
    error_code = _check_identity(group, member_id, instance_id)
    if error_code is not ErrorCode.none:
        return Transition(group), error_code
    return remove_members(group, {member_id}, now_ms), ErrorCode.none


def check_member(group: Group, member_id: str, instance_id: str | None, generation_id: int) -> ErrorCode:
    """Whether the request comes from a living member of the present generation."""
    error_code = _check_identity(group, member_id, instance_id)
    if error_code is ErrorCode.none and generation_id != group.generation_id:
        return ErrorCode.illegal_generation
    return error_code


def _check_identity(group: Group, member_id: str, instance_id: str | None) -> ErrorCode:
    static = group.member_with_instance(instance_id)
    if static is not None and static.member_id != member_id:
        return ErrorCode.fenced_instance_id
    if member_id not in group.members or (instance_id is not None and static is None):
        return ErrorCode.unknown_member_id
    return ErrorCode.none


def _check_sync(group: Group, request: SyncGroupRequest) -> ErrorCode:
    if request.protocol_type not in {None, group.protocol_type}:
        return ErrorCode.inconsistent_group_protocol
    if request.protocol_name not in {None, group.protocol_name}:
        return ErrorCode.inconsistent_group_protocol
    if group.state is GroupState.PREPARING_REBALANCE:
        return ErrorCode.rebalance_in_progress
    return ErrorCode.none


def _is_compatible(group: Group, request: JoinGroupRequest) -> bool:
    if not request.protocol_type or not request.protocols:
        return False
    # A member that joins again does not have to agree with what it said before.
    others = [
        each
        for each in group.members.values()
        if each.member_id != request.member_id
        and (request.group_instance_id is None or each.instance_id != request.group_instance_id)
    ]
    if not others:
        return True
    offered = {each.name for each in request.protocols}
    common = offered.intersection(*({each.name for each in other.protocols} for other in others))
    return request.protocol_type == group.protocol_type and bool(common)


def _refuse_join(group: Group, error_code: ErrorCode, member_id: str) -> Joined:
    return Transition(group), join_refused(error_code, member_id)


def _join_static(
    group: Group, request: JoinGroupRequest, joiner: Joiner, now_ms: int, initial_delay_ms: int
) -> Joined:
    member = group.member_with_instance(request.group_instance_id)
    if not request.member_id:
        if member is None:
            return _join_new(group, request, joiner, now_ms, initial_delay_ms)
        return _replace_static(group, member, request, joiner, now_ms)
    if member is None:
        return _refuse_join(group, ErrorCode.unknown_member_id, request.member_id)
    if member.member_id != request.member_id:
        return _refuse_join(group, ErrorCode.fenced_instance_id, request.member_id)
    return _join_again(group, member, request, joiner, now_ms)


def _join_new(
    group: Group, request: JoinGroupRequest, joiner: Joiner, now_ms: int, initial_delay_ms: int
) -> Joined:
    member_id = request.member_id or joiner.new_member_id
    member = _member(request, joiner, member_id, now_ms)
    grown = replace(
        group.without_pending({member_id}).with_member(member),
        protocol_type=request.protocol_type,
        leader_id=group.leader_id or member_id,
    )
    is_first = group.state is GroupState.EMPTY
    if initial_delay_ms and (is_first or group.join_not_before_ms is not None):
        grown = replace(grown, join_not_before_ms=now_ms + initial_delay_ms)
    return prepare_rebalance(grown, now_ms), None


def _join_again(
    group: Group, member: Member, request: JoinGroupRequest, joiner: Joiner, now_ms: int
) -> Joined:
    updated = replace(_member(request, joiner, member.member_id, now_ms), assignment=member.assignment)
    is_same = updated.protocols == member.protocols
    is_settled = group.state is GroupState.COMPLETING_REBALANCE or (
        group.state is GroupState.STABLE and member.member_id != group.leader_id
    )
    if is_same and is_settled:
        # The answer to its first request was lost; the generation stands.
        kept = group.with_member(member.seen(now_ms))
        return Transition(kept), join_answer(kept, member)
    forgotten = _forgotten(member.join_token, join_refused(ErrorCode.rebalance_in_progress, member.member_id))
    forgotten += _forgotten(member.sync_token, sync_refused(ErrorCode.rebalance_in_progress))
    return Transition(group, forgotten).then(prepare_rebalance(group.with_member(updated), now_ms)), None


def _replace_static(
    group: Group, old: Member, request: JoinGroupRequest, joiner: Joiner, now_ms: int
) -> Joined:
    """Give the place of a static member to its new self, whose member id is new."""
    new = replace(
        _member(request, joiner, joiner.new_member_id, now_ms),
        assignment=old.assignment,
        has_synced=old.has_synced,
    )
    members = {
        (new.member_id if key == old.member_id else key): (new if key == old.member_id else each)
        for key, each in group.members.items()
    }
    was_leader = group.leader_id == old.member_id
    leader_id = new.member_id if was_leader else group.leader_id
    replaced = replace(group, members=members, leader_id=leader_id)
    fenced = _forgotten(old.join_token, join_refused(ErrorCode.fenced_instance_id, old.member_id))
    fenced += _forgotten(old.sync_token, sync_refused(ErrorCode.fenced_instance_id))
    if group.state is not GroupState.STABLE or new.protocols != old.protocols:
        return Transition(replaced, fenced).then(prepare_rebalance(replaced, now_ms)), None
    kept = replaced.with_member(replace(new, join_token=None))
    answer = join_answer(kept, new, skip_assignment=was_leader and joiner.can_skip_assignment)
    if was_leader and not joiner.can_skip_assignment:
        # A leader that can't be told to skip is told that somebody else leads, or it would share out anew.
        answer = replace(answer, leader=old.member_id, members=())
    return Transition(kept, fenced), answer


def _member(request: JoinGroupRequest, joiner: Joiner, member_id: str, now_ms: int) -> Member:
    rebalance_timeout_ms = request.rebalance_timeout_ms
    return Member(
        member_id=member_id,
        instance_id=request.group_instance_id,
        client_id=joiner.client_id,
        client_host=joiner.client_host,
        session_timeout_ms=request.session_timeout_ms,
        # The first version of the protocol had one timeout for both.
        rebalance_timeout_ms=rebalance_timeout_ms
        if rebalance_timeout_ms >= 0
        else request.session_timeout_ms,
        protocols=tuple(Protocol(name=each.name, metadata=each.metadata) for each in request.protocols),
        session_deadline_ms=now_ms + request.session_timeout_ms,
        join_token=joiner.token,
    )


def _forgotten(token: Token | None, response: JoinGroupResponse | SyncGroupResponse) -> tuple[Reply, ...]:
    """The answer for an earlier request of the same member, which a newer one replaces."""
    return () if token is None else (Reply(token, response),)
