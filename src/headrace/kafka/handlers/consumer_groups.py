"""ConsumerGroupHeartbeat and ConsumerGroupDescribe: groups whose partitions the broker shares out."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from kio.schema.errors import ErrorCode

from headrace.errors import HeadraceError
from headrace.kafka.groups.consumer.heartbeat import Occasion
from headrace.kafka.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from headrace.kafka.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from uuid import UUID

    from headrace.kafka.answer import Pending
    from headrace.kafka.groups.consumer.state import ConsumerGroup, ConsumerMember, Partition
    from headrace.kafka.messages.consumer_group_describe import ConsumerGroupDescribeRequest
    from headrace.kafka.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
    from headrace.kafka.services import Call, Services

FIRST_VERSION_WITH_OWN_IDS: Final = 1
"""From this version on members bring ids of their own making."""
CONSUMER_MEMBER: Final = 1


def handle_consumer_group_heartbeat(
    call: Call, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse | Pending[ConsumerGroupHeartbeatResponse]:
    """Let a member join, stay or leave, and tell it what is new."""
    groups = call.services.groups
    occasion = Occasion(
        now_ms=groups.now_ms(),
        topics=groups.topics,
        new_member_id=str(uuid4()),
        must_have_id=call.api_version >= FIRST_VERSION_WITH_OWN_IDS,
        client_id=call.client_id,
        client_host=f"/{call.host}",
        limits=groups.consumer_limits_of(request.group_id),
    )
    outcome, response = groups.coordinator.handle_consumer_heartbeat(request, occasion)
    try:
        groups.carry_out(outcome)
    except HeadraceError as error:
        return ConsumerGroupHeartbeatResponse(
            error_code=ErrorCode.coordinator_not_available, error_message=str(error)
        )
    return groups.answer(request.group_id, response)


def handle_consumer_group_describe(
    call: Call, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    """Describe groups, each once however often it is named."""
    return ConsumerGroupDescribeResponse(
        groups=tuple(_describe(call.services, group_id) for group_id in dict.fromkeys(request.group_ids))
    )


def _describe(services: Services, group_id: str) -> DescribedGroup:
    coordinator = services.groups.coordinator
    group = coordinator.consumer_groups.get(group_id)
    if group is None:
        is_of_another_kind = group_id in coordinator
        return _refused(group_id, "is not a consumer group." if is_of_another_kind else "not found.")
    names = {topic.topic_id: topic.name for topic in services.store.topics.values()}
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor,
        members=tuple(_member(group, member, names) for member in group.members.values()),
    )


def _member(group: ConsumerGroup, member: ConsumerMember, names: Mapping[UUID, str]) -> Member:
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=tuple(sorted(member.subscribed_names)),
        subscribed_topic_regex=member.subscribed_regex,
        assignment=_assignment(member.owned, names),
        target_assignment=_assignment(group.target.get(member.member_id, ()), names),
        member_type=CONSUMER_MEMBER,
    )


def _assignment(partitions: Iterable[Partition], names: Mapping[UUID, str]) -> Assignment:
    """Partitions by topic, but for those of topics that have been deleted."""
    named = sorted((names[topic_id], index, topic_id) for topic_id, index in partitions if topic_id in names)
    return Assignment(
        topic_partitions=tuple(
            TopicPartitions(
                topic_id=topic_id, topic_name=name, partitions=tuple(index for _, index, _ in same)
            )
            for (name, topic_id), same in groupby(named, key=lambda each: (each[0], each[2]))
        )
    )


def _refused(group_id: str, what: str) -> DescribedGroup:
    return DescribedGroup(
        error_code=ErrorCode.group_id_not_found,
        error_message=f"Group {group_id} {what}",
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=(),
    )
