"""DescribeShareGroupOffsets, AlterShareGroupOffsets, DeleteShareGroupOffsets: where share groups stand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.errors import HeadraceError
from headrace.kafka.answer import Pending
from headrace.kafka.audit import audit, listing
from headrace.kafka.groups.coordinator import GroupChanged, Outcome
from headrace.kafka.groups.share.refusal import GROUP_ID_BYTES_MAX
from headrace.kafka.groups.share.state import ShareGroup
from headrace.kafka.handlers.produce import error_code_of
from headrace.kafka.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from headrace.kafka.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from headrace.kafka.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from headrace.kafka.share.deliveries import Deliveries
from headrace.kafka.share.records import ShareKey

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.kafka.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest
    from headrace.kafka.messages.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
    from headrace.kafka.messages.describe_share_group_offsets import (
        DescribeShareGroupOffsetsRequest,
        DescribeShareGroupOffsetsRequestGroup,
    )
    from headrace.kafka.services import Call, Services

NOT_HOSTED = "This server does not host this topic-partition."


def handle_describe_share_group_offsets(
    call: Call, request: DescribeShareGroupOffsetsRequest
) -> DescribeShareGroupOffsetsResponse | Pending[DescribeShareGroupOffsetsResponse]:
    """Tell where groups begin to read, and how much is left for them to do, once that is durable."""
    services = call.services
    described = tuple(_described_or_failed(services, group) for group in request.groups)

    def respond(error: HeadraceError | None) -> DescribeShareGroupOffsetsResponse:
        if error is None:
            return DescribeShareGroupOffsetsResponse(groups=described)
        return DescribeShareGroupOffsetsResponse(
            groups=tuple(_not_described(group.group_id, error) for group in request.groups)
        )

    pending: Pending[DescribeShareGroupOffsetsResponse] = Pending()
    services.shares.when_durable(lambda error: pending.resolve(respond(error)))
    return pending


def handle_alter_share_group_offsets(
    call: Call, request: AlterShareGroupOffsetsRequest
) -> AlterShareGroupOffsetsResponse | Pending[AlterShareGroupOffsetsResponse]:
    """Have a group without members begin elsewhere; a group that there is not begins to be."""
    services, group_id = call.services, request.group_id
    groups = services.groups
    refusal = _refusal(services, group_id, must_exist=False)
    if refusal is not None:
        return AlterShareGroupOffsetsResponse(error_code=refusal[0], error_message=refusal[1])
    pending: Pending[AlterShareGroupOffsetsResponse] = Pending()

    def on_durable(error: HeadraceError | None) -> None:
        if error is not None:
            pending.resolve(_not_altered(error))
            return
        if changes:
            moved = listing(
                f"{_name(services, key)}-{key.partition}@{deliveries.start_offset}"
                for key, deliveries in changes.items()
            )
            audit(call, "share-group.alter-offsets", group=group_id, partitions=moved)
        pending.resolve(AlterShareGroupOffsetsResponse(responses=responses))

    try:
        changes, responses = _moves(services, request)
        if group_id not in groups.coordinator.share_groups:
            groups.carry_out(Outcome((GroupChanged(ShareGroup(group_id=group_id, epoch=1)),)))
        services.shares.write(changes)
        # Both the group and its positions are to be durable.
        groups.write(
            (),
            lambda error: (
                on_durable(error) if error is not None else services.shares.when_durable(on_durable)
            ),
        )
    except HeadraceError as error:
        return _not_altered(error)
    return pending


def _not_altered(error: HeadraceError) -> AlterShareGroupOffsetsResponse:
    return AlterShareGroupOffsetsResponse(error_code=error_code_of(error), error_message=str(error))


def _moves(
    services: Services, request: AlterShareGroupOffsetsRequest
) -> tuple[dict[ShareKey, Deliveries], tuple[AlterShareGroupOffsetsResponseTopic, ...]]:
    """What changes, and what is answered about each partition if that can be written down."""
    changes: dict[ShareKey, Deliveries] = {}
    responses = []
    for asked in request.topics:
        topic = services.store.topics.get(asked.topic_name)
        partitions = []
        for each in asked.partitions:
            if topic is None or not 0 <= each.partition_index < len(topic.partitions):
                partitions.append(_not_hosted(each.partition_index))
                continue
            key = ShareKey(request.group_id, topic.topic_id, each.partition_index)
            before = services.shares.get(key) or Deliveries(start_offset=0)
            changes[key] = before.moved_to(max(each.start_offset, 0))
            partitions.append(AlterShareGroupOffsetsResponsePartition(partition_index=each.partition_index))
        responses.append(
            AlterShareGroupOffsetsResponseTopic(
                topic_name=asked.topic_name,
                topic_id=None if topic is None else topic.topic_id,
                partitions=tuple(partitions),
            )
        )
    return changes, tuple(responses)


def _not_hosted(index: int) -> AlterShareGroupOffsetsResponsePartition:
    return AlterShareGroupOffsetsResponsePartition(
        partition_index=index, error_code=ErrorCode.unknown_topic_or_partition, error_message=NOT_HOSTED
    )


def handle_delete_share_group_offsets(
    call: Call, request: DeleteShareGroupOffsetsRequest
) -> DeleteShareGroupOffsetsResponse | Pending[DeleteShareGroupOffsetsResponse]:
    """Forget where a group without members stands in topics."""
    services, group_id = call.services, request.group_id
    refusal = _refusal(services, group_id, must_exist=True)
    if refusal is not None:
        return DeleteShareGroupOffsetsResponse(error_code=refusal[0], error_message=refusal[1])
    try:
        positions = services.shares.of_group(group_id)
        named = [services.store.topics.get(asked.topic_name) for asked in request.topics]
        ids = {topic.topic_id for topic in named if topic is not None}
        changes = {key: None for key in positions if key.topic_id in ids}
        services.shares.write(changes)
    except HeadraceError as error:
        return DeleteShareGroupOffsetsResponse(error_code=error_code_of(error), error_message=str(error))

    def respond(error: HeadraceError | None) -> DeleteShareGroupOffsetsResponse:
        if error is not None:
            return DeleteShareGroupOffsetsResponse(error_code=error_code_of(error), error_message=str(error))
        if changes:
            topics = listing(dict.fromkeys(_name(services, key) for key in changes))
            audit(call, "share-group.delete-offsets", group=group_id, topics=topics)
        return DeleteShareGroupOffsetsResponse(
            responses=tuple(
                DeleteShareGroupOffsetsResponseTopic(
                    topic_name=asked.topic_name,
                    topic_id=None if topic is None else topic.topic_id,
                    error_code=ErrorCode.unknown_topic_or_partition if topic is None else ErrorCode.none,
                    error_message=NOT_HOSTED if topic is None else None,
                )
                for asked, topic in zip(request.topics, named, strict=True)
            )
        )

    return services.shares.answer(respond)


def _refusal(services: Services, group_id: str, *, must_exist: bool) -> tuple[ErrorCode, str] | None:
    """Why the positions of a group can't be changed, if they can't."""
    coordinator = services.groups.coordinator
    group = coordinator.share_groups.get(group_id)
    if not group_id.strip() or len(group_id.encode()) > GROUP_ID_BYTES_MAX:
        return ErrorCode.invalid_group_id, f"The group has no name, or one above {GROUP_ID_BYTES_MAX} bytes."
    if group is None and group_id in coordinator:
        return ErrorCode.group_id_not_found, f"Group {group_id} is not a share group."
    if group is None and must_exist:
        return ErrorCode.group_id_not_found, f"Group {group_id} not found."
    if group is None and coordinator.is_full(group_id):
        return ErrorCode.policy_violation, f"There are {coordinator.group_count} groups already."
    if group is not None and group.members:
        return (
            ErrorCode.non_empty_group,
            f"Group {group_id} has {len(group.members)} members.",
        )
    return None


def _described_or_failed(
    services: Services, asked: DescribeShareGroupOffsetsRequestGroup
) -> DescribeShareGroupOffsetsResponseGroup:
    try:
        return _described(services, asked)
    except HeadraceError as error:
        return _not_described(asked.group_id, error)


def _not_described(group_id: str, error: HeadraceError) -> DescribeShareGroupOffsetsResponseGroup:
    return DescribeShareGroupOffsetsResponseGroup(
        group_id=group_id, error_code=error_code_of(error), error_message=str(error)
    )


def _described(
    services: Services, asked: DescribeShareGroupOffsetsRequestGroup
) -> DescribeShareGroupOffsetsResponseGroup:
    topics = _all_topics(services, asked.group_id) if asked.topics is None else asked.topics
    return DescribeShareGroupOffsetsResponseGroup(
        group_id=asked.group_id,
        topics=tuple(_described_topic(services, asked.group_id, topic) for topic in topics),
    )


def _all_topics(services: Services, group_id: str) -> Iterable[DescribeShareGroupOffsetsRequestTopic]:
    partitions: dict[str, list[int]] = {}
    for key in services.shares.of_group(group_id):
        partitions.setdefault(_name(services, key), []).append(key.partition)
    return [
        DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=tuple(sorted(indexes)))
        for name, indexes in sorted(partitions.items())
    ]


def _described_topic(
    services: Services, group_id: str, asked: DescribeShareGroupOffsetsRequestTopic
) -> DescribeShareGroupOffsetsResponseTopic:
    topic = services.store.topics.get(asked.topic_name)
    partitions = []
    for index in asked.partitions:
        log = None if topic is None else services.partition("", topic.topic_id, index)
        known = None if topic is None else services.shares.get(ShareKey(group_id, topic.topic_id, index))
        if log is None or known is None:
            partitions.append(DescribeShareGroupOffsetsResponsePartition(partition_index=index))
            continue
        deliveries = known.advance(log.start_offset)
        # A position may have been moved past the end.
        left_count = services.commit.high_watermark(log) - deliveries.start_offset - deliveries.settled_count
        partitions.append(
            DescribeShareGroupOffsetsResponsePartition(
                partition_index=index, start_offset=deliveries.start_offset, lag=max(left_count, 0)
            )
        )
    return DescribeShareGroupOffsetsResponseTopic(
        topic_name=asked.topic_name,
        topic_id=None if topic is None else topic.topic_id,
        partitions=tuple(partitions),
    )


def _name(services: Services, key: ShareKey) -> str:
    topic = services.store.topics_by_id.get(key.topic_id)
    return str(key.topic_id) if topic is None else topic.name
