"""ShareGroupHeartbeat and ShareGroupDescribe: groups whose members share records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kio.schema.errors import ErrorCode

from headrace.errors import HeadraceError
from headrace.kafka.authorized_operations import GROUP_OPERATIONS, NOT_ASKED
from headrace.kafka.groups.share.heartbeat import ShareOccasion
from headrace.kafka.groups.share.target import ASSIGNOR
from headrace.kafka.groups.topic_partitions import by_topic
from headrace.kafka.messages.share_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    ShareGroupDescribeResponse,
    TopicPartitions,
)
from headrace.kafka.messages.share_group_heartbeat import ShareGroupHeartbeatResponse

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from headrace.kafka.answer import Pending
    from headrace.kafka.groups.share.state import ShareGroup, ShareMember
    from headrace.kafka.messages.share_group_describe import ShareGroupDescribeRequest
    from headrace.kafka.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
    from headrace.kafka.services import Call, Services
    from headrace.log.topic import Topic

NOT_FOUND: Final = "Group {} not found."
OF_ANOTHER_KIND: Final = "Group {} is not a share group."


def handle_share_group_heartbeat(
    call: Call, request: ShareGroupHeartbeatRequest
) -> ShareGroupHeartbeatResponse | Pending[ShareGroupHeartbeatResponse]:
    """Let a member join, stay or leave, and tell it what is new."""
    groups = call.services.groups
    occasion = ShareOccasion(
        now_ms=groups.now_ms(),
        topics=groups.topics,
        client_id=call.client_id,
        client_host=f"/{call.host}",
        limits=groups.share_limits_of(request.group_id),
    )
    outcome, response = groups.coordinator.handle_share_heartbeat(request, occasion)
    try:
        groups.carry_out(outcome)
    except HeadraceError as error:
        return ShareGroupHeartbeatResponse(
            error_code=ErrorCode.coordinator_not_available, error_message=str(error)
        )
    return groups.answer(request.group_id, response)


def handle_share_group_describe(call: Call, request: ShareGroupDescribeRequest) -> ShareGroupDescribeResponse:
    """Describe groups, each once however often it is named."""
    operations = GROUP_OPERATIONS if request.include_authorized_operations else NOT_ASKED
    return ShareGroupDescribeResponse(
        groups=tuple(
            _describe(call.services, group_id, operations) for group_id in dict.fromkeys(request.group_ids)
        )
    )


def _describe(services: Services, group_id: str, operations: int) -> DescribedGroup:
    coordinator = services.groups.coordinator
    group = coordinator.share_groups.get(group_id)
    if group is None:
        return _refused(group_id, OF_ANOTHER_KIND if group_id in coordinator else NOT_FOUND)
    return _described(group, services.store.topics_by_id, operations)


def _described(group: ShareGroup, topics: Mapping[UUID, Topic], operations: int) -> DescribedGroup:
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=ASSIGNOR,
        members=tuple(_member(member, topics) for member in group.members.values()),
        authorized_operations=operations,
    )


def _member(member: ShareMember, topics: Mapping[UUID, Topic]) -> Member:
    return Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=tuple(sorted(member.subscribed_names)),
        assignment=Assignment(
            topic_partitions=tuple(
                TopicPartitions(topic_id=topic_id, topic_name=topics[topic_id].name, partitions=indexes)
                for topic_id, indexes in by_topic(member.assigned)
                if topic_id in topics
            )
        ),
    )


def _refused(group_id: str, message: str) -> DescribedGroup:
    is_named = group_id != ""
    return DescribedGroup(
        error_code=ErrorCode.group_id_not_found if is_named else ErrorCode.invalid_group_id,
        error_message=message.format(group_id) if is_named else None,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=(),
    )
