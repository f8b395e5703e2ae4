"""Share groups as they were before a restart, put together again from their records."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from headrace.kafka.groups.record_codec import (
    SHARE_CURRENT_ASSIGNMENT,
    SHARE_GROUP_EPOCH,
    SHARE_MEMBER_METADATA,
    SHARE_TARGET,
    SHARE_TARGET_EPOCH,
)
from headrace.kafka.groups.share.state import ShareGroup, ShareMember
from headrace.kafka.groups.topic_partitions import one_by_one, topics_hash

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.kafka.groups.consumer.state import TopicInfo
    from headrace.kafka.groups.record_codec import Kind
    from headrace.kafka.groups.record_schemas import (
        ShareCurrentAssignment,
        ShareGroupEpoch,
        ShareMemberMetadata,
        Target,
        TargetEpoch,
    )


@dataclass(slots=True)
class ShareGroupParts:
    """The records of one share group, taken in the order of the log."""

    epoch: ShareGroupEpoch | None = None
    target_epoch: TargetEpoch | None = None
    members: dict[str, ShareMemberMetadata] = field(default_factory=dict)
    targets: dict[str, Target] = field(default_factory=dict)
    assignments: dict[str, ShareCurrentAssignment] = field(default_factory=dict)

    def take(self, kind: Kind, key: Any, value: Any | None) -> None:
        """Take a record in; one without a value says that it is no more."""
        if kind == SHARE_GROUP_EPOCH:
            self.epoch = value
        elif kind == SHARE_TARGET_EPOCH:
            self.target_epoch = value
        else:
            by_member: dict[Kind, dict[str, Any]] = {
                SHARE_MEMBER_METADATA: self.members,
                SHARE_TARGET: self.targets,
                SHARE_CURRENT_ASSIGNMENT: self.assignments,
            }
            if value is None:
                by_member[kind].pop(key.member_id, None)
            else:
                by_member[kind][key.member_id] = value

    def group(
        self, group_id: str, topics: Mapping[str, TopicInfo], session_deadline_ms: int
    ) -> ShareGroup | None:
        """The group that the records end with, if there is one."""
        if self.epoch is None:
            return None
        members = {member_id: self._member(member_id, session_deadline_ms) for member_id in self.members}
        group = ShareGroup(
            group_id=group_id,
            epoch=self.epoch.epoch,
            assignment_epoch=0 if self.target_epoch is None else self.target_epoch.assignment_epoch,
            members=members,
            target={
                key: one_by_one(target.topic_partitions)
                for key, target in self.targets.items()
                if key in members
            },
        ).with_subscriptions()
        found = {name: topics[name] for name in group.subscribed_names if name in topics}
        # Topics that changed while nobody looked are noticed at the next heartbeat.
        return replace(group, topics=found if topics_hash(found) == self.epoch.metadata_hash else {})

    def _member(self, member_id: str, session_deadline_ms: int) -> ShareMember:
        metadata, current = self.members[member_id], self.assignments.get(member_id)
        member = ShareMember(
            member_id=member_id,
            rack_id=metadata.rack_id,
            client_id=metadata.client_id,
            client_host=metadata.client_host,
            subscribed_names=frozenset(metadata.subscribed_topic_names),
            session_deadline_ms=session_deadline_ms,
        )
        if current is None:
            return member
        return replace(
            member,
            epoch=current.member_epoch,
            previous_epoch=current.previous_member_epoch,
            assigned=one_by_one(current.assigned_partitions),
        )
