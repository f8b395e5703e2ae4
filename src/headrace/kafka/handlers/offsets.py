"""OffsetCommit and OffsetFetch: how far a group has come.

A client may ask for offsets that are stable: where a transaction has committed one and not ended yet, it is
told to ask again (KIP-447).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from kio.schema.errors import ErrorCode

from headrace.errors import HeadraceError
from headrace.kafka.answer import Pending
from headrace.kafka.audit import audit, listing
from headrace.kafka.groups.committing import Committer
from headrace.kafka.groups.offsets import OffsetCommitted
from headrace.kafka.handlers.produce import error_code_of
from headrace.kafka.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from headrace.kafka.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from uuid import UUID

    from headrace.kafka.messages.offset_commit import (
        OffsetCommitRequest,
        OffsetCommitRequestTopic,
    )
    from headrace.kafka.messages.offset_fetch import OffsetFetchRequest
    from headrace.kafka.services import Call, Services
    from headrace.log.topic import Topic

NO_OFFSET: Final = -1
"""What OffsetFetch answers where nothing is committed. To commit it says the same; less is a mistake."""
FIRST_VERSION_WITH_GROUPS: Final = 8
FIRST_VERSION_WHERE_NULL_IS_ALL: Final = 2


def handle_offset_commit(
    call: Call, request: OffsetCommitRequest
) -> OffsetCommitResponse | Pending[OffsetCommitResponse]:
    """Keep offsets; the answer waits until they are durable."""
    services = call.services
    groups = services.groups
    error_code = groups.coordinator.check_commit(_committer(call, request))
    if error_code is not ErrorCode.none:
        return _commit_response(request, error_code)
    records: list[OffsetCommitted] = []
    response = OffsetCommitResponse(
        topics=tuple(_commit_topic(services, request, topic, records) for topic in request.topics)
    )
    pending: Pending[OffsetCommitResponse] = Pending()
    resets = [] if request.member_id else _resets(services, records)

    def on_durable(error: HeadraceError | None) -> None:
        if resets and error is None:
            audit(call, "group.reset-offsets", group=request.group_id, offsets=listing(resets))
        pending.resolve(response if error is None else _commit_response(request, error_code_of(error)))

    try:
        groups.write(records, on_durable)
    except HeadraceError as error:
        return _commit_response(request, error_code_of(error))
    groups.carry_out(groups.coordinator.handle_alive(request.group_id, request.member_id, groups.now_ms()))
    return pending


def handle_offset_fetch(call: Call, request: OffsetFetchRequest) -> OffsetFetchResponse:
    """Say what has been committed."""
    services = call.services
    if call.api_version >= FIRST_VERSION_WITH_GROUPS:
        return OffsetFetchResponse(
            groups=tuple(
                _fetch_as_member(services, group, require_stable=request.require_stable)
                for group in _distinct_groups(request.groups)
            )
        )
    topics = request.topics
    if call.api_version < FIRST_VERSION_WHERE_NULL_IS_ALL:
        topics = topics or ()
    (group,) = _distinct_groups([OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)])
    found = _fetch_group(services, group, require_stable=request.require_stable)
    return OffsetFetchResponse(topics=found.topics)


def _resets(services: Services, records: list[OffsetCommitted]) -> list[str]:
    """Where somebody who is no member of the group moves it back, which makes it read records again.

    A consumer that assigns partitions to itself is no member either, but it only moves forward.
    """
    resets = []
    for record in records:
        offsets = services.groups.coordinator.offsets.get(record.group_id, {})
        held = offsets.get((record.topic, record.partition))
        if held is not None and record.offset < held.offset:
            resets.append(f"{record.topic}-{record.partition}:{held.offset}->{record.offset}")
    return resets


def _committer(call: Call, request: OffsetCommitRequest) -> Committer:
    topics = ((call.services.topic(each.name, each.topic_id), each.partitions) for each in request.topics)
    return Committer(
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        generation_id=request.generation_id_or_member_epoch,
        api_version=call.api_version,
        partitions=[
            (topic.topic_id, each.partition_index)
            for topic, partitions in topics
            if topic is not None
            for each in partitions
        ],
    )


def _commit_topic(
    services: Services,
    request: OffsetCommitRequest,
    asked: OffsetCommitRequestTopic,
    records: list[OffsetCommitted],
) -> OffsetCommitResponseTopic:
    topic = services.topic(asked.name, asked.topic_id)
    partitions = []
    for each in asked.partitions:
        outcome = offset_to_commit(services, request.group_id, topic, each)
        if isinstance(outcome, OffsetCommitted):
            records.append(outcome)
        error_code = outcome if isinstance(outcome, ErrorCode) else ErrorCode.none
        partitions.append(
            OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=error_code)
        )
    if topic is None and asked.topic_id is not None:
        partitions = [
            OffsetCommitResponsePartition(
                partition_index=each.partition_index, error_code=ErrorCode.unknown_topic_id
            )
            for each in asked.partitions
        ]
    return OffsetCommitResponseTopic(name=asked.name, topic_id=asked.topic_id, partitions=tuple(partitions))


class CommittedPartition(Protocol):
    """What OffsetCommit and TxnOffsetCommit say about a partition."""

    @property
    def partition_index(self) -> int:
        """Which one."""
        ...

    @property
    def committed_offset(self) -> int:
        """How far the group has come."""
        ...

    @property
    def committed_leader_epoch(self) -> int:
        """Who led the partition when the record before was read."""
        ...

    @property
    def committed_metadata(self) -> str | None:
        """What the group wants to remember beside it."""
        ...


def offset_to_commit(
    services: Services, group_id: str, topic: Topic | None, partition: CommittedPartition
) -> OffsetCommitted | ErrorCode:
    """The offset to be kept, or why it can't be."""
    index, metadata = partition.partition_index, partition.committed_metadata or ""
    if topic is None or not 0 <= index < len(topic.partitions):
        return ErrorCode.unknown_topic_or_partition
    if partition.committed_offset < NO_OFFSET:
        return ErrorCode.invalid_request
    if len(metadata.encode()) > services.config.offset_metadata_bytes_max:
        return ErrorCode.offset_metadata_too_large
    return OffsetCommitted(
        group_id=group_id,
        topic=topic.name,
        partition=index,
        offset=partition.committed_offset,
        leader_epoch=partition.committed_leader_epoch,
        metadata=metadata,
        committed_at_ms=services.groups.wall_ms(),
    )


def _commit_response(request: OffsetCommitRequest, error_code: ErrorCode) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=tuple(
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=tuple(
                    OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=error_code)
                    for each in topic.partitions
                ),
            )
            for topic in request.topics
        )
    )


def _distinct_groups(groups: Iterable[OffsetFetchRequestGroup]) -> list[OffsetFetchRequestGroup]:
    """Each group once, with everything that is asked of it.

    What is asked for often is answered once: an offset's metadata is far larger than the four bytes that ask
    for it.
    """
    topics_by_member: dict[tuple[str, str | None, int], list[OffsetFetchRequestTopic] | None] = {}
    for group in groups:
        member = (group.group_id, group.member_id, group.member_epoch)
        known = topics_by_member.setdefault(member, [])
        if known is None or group.topics is None:
            topics_by_member[member] = None
        else:
            known.extend(group.topics)
    return [
        OffsetFetchRequestGroup(
            group_id=group_id,
            member_id=member_id,
            member_epoch=member_epoch,
            topics=None if topics is None else _distinct_topics(topics),
        )
        for (group_id, member_id, member_epoch), topics in topics_by_member.items()
    ]


def _distinct_topics(topics: Iterable[OffsetFetchRequestTopic]) -> tuple[OffsetFetchRequestTopic, ...]:
    indexes: dict[tuple[str, UUID | None], dict[int, None]] = {}
    for topic in topics:
        known = indexes.setdefault((topic.name, topic.topic_id), {})
        known.update(dict.fromkeys(topic.partition_indexes))
    return tuple(
        OffsetFetchRequestTopic(name=name, topic_id=topic_id, partition_indexes=tuple(known))
        for (name, topic_id), known in indexes.items()
    )


def _fetch_as_member(
    services: Services, group: OffsetFetchRequestGroup, *, require_stable: bool
) -> OffsetFetchResponseGroup:
    error_code = services.groups.coordinator.check_fetch(group.group_id, group.member_id, group.member_epoch)
    if error_code is ErrorCode.none:
        return _fetch_group(services, group, require_stable=require_stable)
    return OffsetFetchResponseGroup(group_id=group.group_id, topics=(), error_code=error_code)


def _fetch_group(
    services: Services, group: OffsetFetchRequestGroup, *, require_stable: bool
) -> OffsetFetchResponseGroup:
    asked = group.topics
    if asked is None:
        keys = set(services.groups.coordinator.offsets_of(group.group_id))
        if require_stable:
            keys.update(services.groups.unstable_partitions(group.group_id))
        asked = _distinct_topics(
            OffsetFetchRequestTopic(name=topic, partition_indexes=(index,)) for topic, index in sorted(keys)
        )
    return OffsetFetchResponseGroup(
        group_id=group.group_id,
        topics=tuple(
            _fetch_topic(services, group.group_id, topic, require_stable=require_stable) for topic in asked
        ),
    )


def _fetch_topic(
    services: Services, group_id: str, asked: OffsetFetchRequestTopic, *, require_stable: bool
) -> OffsetFetchResponseTopic:
    topic = services.topic(asked.name, asked.topic_id)
    is_unknown_id = topic is None and asked.topic_id is not None
    name = asked.name if topic is None else topic.name
    return OffsetFetchResponseTopic(
        name=name,
        topic_id=asked.topic_id if topic is None else topic.topic_id,
        partitions=tuple(
            _no_offset(index, ErrorCode.unknown_topic_id)
            if is_unknown_id
            else _fetch_partition(services, group_id, name, index, require_stable=require_stable)
            for index in asked.partition_indexes
        ),
    )


def _fetch_partition(
    services: Services, group_id: str, topic: str, index: int, *, require_stable: bool
) -> OffsetFetchResponsePartition:
    if require_stable and not services.groups.is_stable(group_id, topic, index):
        return _no_offset(index, ErrorCode.unstable_offset_commit)
    committed = services.groups.coordinator.offsets_of(group_id).get((topic, index))
    if committed is None:
        return _no_offset(index, ErrorCode.none)
    return OffsetFetchResponsePartition(
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
    )


def _no_offset(index: int, error_code: ErrorCode) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(
        partition_index=index, committed_offset=NO_OFFSET, metadata="", error_code=error_code
    )
