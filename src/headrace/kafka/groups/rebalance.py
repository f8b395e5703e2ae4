"""How a group goes from one generation to the next. Pure functions from a group to a group and replies."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from kio.schema.errors import ErrorCode

from headrace.kafka.groups.state import Group, GroupState, Member, Token
from headrace.kafka.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from headrace.kafka.messages.sync_group import SyncGroupResponse


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer for a request that has been waiting."""

    token: Token
    response: JoinGroupResponse | SyncGroupResponse


@dataclass(frozen=True, slots=True)
class Transition:
    """What a group becomes, and who hears of it."""

    group: Group
    replies: tuple[Reply, ...] = ()

    def then(self, following: Transition) -> Transition:
        """This transition and the one that follows from its group."""
        return Transition(following.group, self.replies + following.replies)


def join_refused(error_code: ErrorCode, member_id: str = "") -> JoinGroupResponse:
    """The answer for a member that may not join."""
    return JoinGroupResponse(
        error_code=error_code, protocol_name="", leader="", member_id=member_id, members=()
    )


def sync_refused(error_code: ErrorCode) -> SyncGroupResponse:
    """The answer for a member that gets no assignment."""
    return SyncGroupResponse(error_code=error_code, assignment=b"")


def join_answer(group: Group, member: Member, *, skip_assignment: bool = False) -> JoinGroupResponse:
    """Tell a member about the generation. Only the leader is told who the others are."""
    is_leader = member.member_id == group.leader_id
    return JoinGroupResponse(
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader_id or "",
        skip_assignment=skip_assignment,
        member_id=member.member_id,
        members=tuple(
            JoinGroupResponseMember(
                member_id=each.member_id,
                group_instance_id=each.instance_id,
                metadata=each.metadata_for(group.protocol_name),
            )
            for each in group.members.values()
        )
        if is_leader
        else (),
    )


def sync_answer(group: Group, member: Member) -> SyncGroupResponse:
    """Give a member its assignment."""
    return SyncGroupResponse(
        assignment=member.assignment,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
    )


def prepare_rebalance(group: Group, now_ms: int) -> Transition:
    """Ask all members to join again, then go on at once if nobody is missing."""
    if group.state is GroupState.PREPARING_REBALANCE:
        return complete_join_if_ready(group, now_ms)
    told = [each for each in group.members.values() if each.sync_token is not None]
    refusal = sync_refused(ErrorCode.rebalance_in_progress)
    members = {
        each.member_id: replace(each.seen(now_ms), sync_token=None) if each in told else each
        for each in group.members.values()
    }
    preparing = replace(
        group,
        state=GroupState.PREPARING_REBALANCE,
        members=members,
        rebalance_deadline_ms=now_ms + group.rebalance_timeout_ms,
    )
    replies = tuple(Reply(each.sync_token, refusal) for each in told)
    return Transition(preparing, replies).then(complete_join_if_ready(preparing, now_ms))


def complete_join_if_ready(group: Group, now_ms: int) -> Transition:
    """Begin the next generation if every member has joined and nobody else is expected."""
    if group.state is not GroupState.PREPARING_REBALANCE:
        return Transition(group)
    is_early = group.join_not_before_ms is not None and now_ms < group.join_not_before_ms
    is_missing = any(each.join_token is None for each in group.members.values()) or group.pending_ids
    return Transition(group) if is_early or is_missing else complete_join(group, now_ms)


def complete_join(group: Group, now_ms: int) -> Transition:
    """Begin the next generation with those who have joined. Static members keep their place meanwhile."""
    late = {
        each.member_id
        for each in group.members.values()
        if each.join_token is None and each.instance_id is None
    }
    group = group.without_members(late)
    if not group.members:
        return Transition(_emptied(group))
    joined = [each for each in group.members.values() if each.join_token is not None]
    if not joined:
        return Transition(replace(group, rebalance_deadline_ms=now_ms + group.rebalance_timeout_ms))
    return _begin_generation(group, joined, now_ms)


def _begin_generation(group: Group, joined: list[Member], now_ms: int) -> Transition:
    leader_id = group.leader_id if group.leader_id in {each.member_id for each in joined} else None
    members = {
        each.member_id: replace(
            each.seen(now_ms) if each.join_token is not None else each,
            join_token=None,
            has_synced=False,
            assignment=b"",
        )
        for each in group.members.values()
    }
    begun = replace(
        group,
        state=GroupState.COMPLETING_REBALANCE,
        generation_id=group.generation_id + 1,
        protocol_name=choose_protocol(group),
        leader_id=leader_id or joined[0].member_id,
        members=members,
        rebalance_deadline_ms=now_ms + group.rebalance_timeout_ms,
        join_not_before_ms=None,
    )
    return Transition(begun, tuple(Reply(each.join_token, join_answer(begun, each)) for each in joined))


def choose_protocol(group: Group) -> str | None:
    """The protocol that all members know and most of them like best."""
    common = common_protocols(group)
    votes = Counter(
        next(each.name for each in member.protocols if each.name in common)
        for member in group.members.values()
        if common
    )
    # Where votes are equal, the order of the member who has been there longest decides.
    return max(common, key=lambda name: votes[name], default=None)


def common_protocols(group: Group) -> list[str]:
    """The protocols that all members know, in the order of the first member."""
    members = list(group.members.values())
    if not members:
        return []
    known = [{each.name for each in member.protocols} for member in members]
    return [each.name for each in members[0].protocols if all(each.name in names for names in known)]


def store_assignments(group: Group, assignments: dict[str, bytes], now_ms: int) -> Transition:
    """Take the leader's assignment and hand it to everybody who waits for it."""
    waiting = [each for each in group.members.values() if each.sync_token is not None]
    members = {
        each.member_id: replace(
            each.seen(now_ms) if each in waiting else each,
            sync_token=None,
            assignment=assignments.get(each.member_id, b""),
        )
        for each in group.members.values()
    }
    # The deadline stays: a member that never asks for its assignment would hold its partitions for ever.
    stable = replace(group, state=GroupState.STABLE, members=members)
    replies = tuple(Reply(each.sync_token, sync_answer(stable, members[each.member_id])) for each in waiting)
    return Transition(without_idle_deadline(stable), replies)


def without_idle_deadline(group: Group) -> Group:
    """The group without its deadline, once everybody has asked for the assignment."""
    if group.state is GroupState.STABLE and all(each.has_synced for each in group.members.values()):
        return replace(group, rebalance_deadline_ms=None)
    return group


def remove_members(group: Group, member_ids: set[str], now_ms: int) -> Transition:
    """Take members out, tell those of them who wait, and let the others share out again."""
    gone = [group.members[member_id] for member_id in member_ids]
    replies = tuple(reply for member in gone for reply in _farewell(member))
    rest = group.without_members(member_ids)
    if not rest.members:
        return Transition(_emptied(rest), replies)
    return Transition(rest, replies).then(prepare_rebalance(rest, now_ms))


def expire(group: Group, now_ms: int) -> Transition:
    """Do what time asks for: drop the silent, end a rebalance that has lasted long enough."""
    lapsed = {key for key, deadline_ms in group.pending_ids.items() if deadline_ms <= now_ms}
    step = Transition(_without_past_delay(group.without_pending(lapsed) if lapsed else group, now_ms))
    silent = {
        each.member_id
        for each in group.members.values()
        if each.session_deadline_ms <= now_ms and not each.is_waiting
    }
    if silent:
        step = step.then(remove_members(step.group, silent, now_ms))
    return step.then(_end_phase(step.group, now_ms))


def _without_past_delay(group: Group, now_ms: int) -> Group:
    if group.join_not_before_ms is None or group.join_not_before_ms > now_ms:
        return group
    return replace(group, join_not_before_ms=None)


def _end_phase(group: Group, now_ms: int) -> Transition:
    is_over = group.rebalance_deadline_ms is not None and group.rebalance_deadline_ms <= now_ms
    if group.state is GroupState.PREPARING_REBALANCE:
        return complete_join(group, now_ms) if is_over else complete_join_if_ready(group, now_ms)
    if not is_over:
        return Transition(group)
    idle = {each.member_id for each in group.members.values() if not each.has_synced}
    if not idle:
        return Transition(replace(group, rebalance_deadline_ms=None))
    return remove_members(group, idle, now_ms)


def _emptied(group: Group) -> Group:
    return replace(
        group,
        state=GroupState.EMPTY,
        generation_id=group.generation_id + 1,
        protocol_name=None,
        leader_id=None,
        rebalance_deadline_ms=None,
        join_not_before_ms=None,
    )


def _farewell(member: Member) -> list[Reply]:
    replies = []
    if member.join_token is not None:
        replies.append(Reply(member.join_token, join_refused(ErrorCode.unknown_member_id, member.member_id)))
    if member.sync_token is not None:
        replies.append(Reply(member.sync_token, sync_refused(ErrorCode.unknown_member_id)))
    return replies
