"""The topics that members of a share group want, and the target that follows from them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from headrace.kafka.groups.consumer.assignors import Subscriber
from headrace.kafka.groups.share.assignor import assign_simple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.kafka.groups.consumer.state import TopicInfo
    from headrace.kafka.groups.share.state import ShareGroup

ASSIGNOR: Final = "simple"
"""What Kafka calls the only assignor of share groups."""


def refresh_topics(group: ShareGroup, topics: Mapping[str, TopicInfo], *, has_changed: bool) -> ShareGroup:
    """Begin a new epoch if members want other topics than before, or the topics are not what they were."""
    if has_changed:
        group = group.with_subscriptions()
    found = {name: topics[name] for name in group.subscribed_names if name in topics}
    if has_changed or found != group.topics:
        return replace(group, epoch=group.epoch + 1, topics=found)
    return group


def update_target(group: ShareGroup) -> ShareGroup:
    """Share out the partitions if the group has begun an epoch since they were shared out."""
    if group.assignment_epoch == group.epoch:
        return group
    topics = group.topics
    topic_ids = {
        names: frozenset(topics[name].topic_id for name in names if name in topics)
        for names in {member.subscribed_names for member in group.members.values()}
    }
    subscribers = {
        member_id: Subscriber(
            topic_ids=topic_ids[member.subscribed_names],
            previous=group.target.get(member_id, frozenset()),
        )
        for member_id, member in group.members.items()
    }
    partition_counts = {topic.topic_id: topic.partition_count for topic in topics.values()}
    target = assign_simple(subscribers, partition_counts)
    return replace(group, assignment_epoch=group.epoch, target=target)
