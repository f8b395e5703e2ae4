"""What the members of a group subscribe to, and the target that follows from it."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from kio.schema.errors import ErrorCode

from headrace.errors import ConfigError
from headrace.kafka.groups.consumer.assignors import ASSIGNORS, Subscriber, preferred_assignor
from headrace.kafka.groups.consumer.pattern import TopicPattern
from headrace.kafka.groups.consumer.refusal import Refused

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from headrace.kafka.groups.consumer.state import ConsumerGroup, ConsumerMember, TopicInfo

REMATCH_INTERVAL_MS: Final = 1_000
"""How often regular expressions are held against the topics that there are, while members send heartbeats."""


@lru_cache(maxsize=128)
def compiled_pattern(text: str) -> TopicPattern:
    """The expression, ready for use, or a refusal that says what is wrong with it."""
    try:
        return TopicPattern(text)
    except ConfigError as error:
        raise Refused(
            ErrorCode.invalid_regular_expression,
            f"SubscribedTopicRegex `{text}` is not a valid regular expression: {error}.",
        ) from error


def refresh_subscriptions(
    group: ConsumerGroup, topics: Mapping[str, TopicInfo], now_ms: int, *, has_changed: bool
) -> ConsumerGroup:
    """Begin a new epoch if members want other topics than before, or the topics are not what they were."""
    if has_changed:
        group = _with_matches(group, topics, now_ms).with_subscriptions()
    elif group.matches and now_ms >= group.matched_at_ms + REMATCH_INTERVAL_MS:
        matched = _with_matches(group, topics, now_ms)
        group = matched if matched.matches == group.matches else matched.with_subscriptions()
    found = {name: topics[name] for name in group.subscribed_names if name in topics}
    if has_changed or found != group.topics:
        return replace(group, epoch=group.epoch + 1, topics=found)
    return group


def update_target(group: ConsumerGroup) -> ConsumerGroup:
    """Share out the partitions if the group has begun an epoch since they were shared out."""
    if group.assignment_epoch == group.epoch:
        return group
    assignor = preferred_assignor(member.server_assignor for member in group.members.values())
    partition_counts = {topic.topic_id: topic.partition_count for topic in group.topics.values()}
    target = ASSIGNORS[assignor](_subscribers(group), partition_counts)
    return replace(group, assignment_epoch=group.epoch, target=target, assignor=assignor)


def _with_matches(group: ConsumerGroup, topics: Mapping[str, TopicInfo], now_ms: int) -> ConsumerGroup:
    expressions = {each.subscribed_regex for each in group.members.values() if each.subscribed_regex}
    matches = {text: frozenset(filter(compiled_pattern(text).matches, topics)) for text in expressions}
    return replace(group, matches=matches, matched_at_ms=now_ms)


def _subscribers(group: ConsumerGroup) -> Mapping[str, Subscriber]:
    known: dict[frozenset[str], frozenset[UUID]] = {}

    def topic_ids_of(member: ConsumerMember) -> frozenset[UUID]:
        names = group.subscriptions_of(member)
        if names not in known:
            known[names] = frozenset(group.topics[name].topic_id for name in names if name in group.topics)
        return known[names]

    return {
        member_id: Subscriber(
            instance_id=member.instance_id,
            topic_ids=topic_ids_of(member),
            previous=group.target.get(member_id, frozenset()),
        )
        for member_id, member in group.members.items()
    }
