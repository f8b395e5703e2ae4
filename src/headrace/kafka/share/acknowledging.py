"""What a member says of records, taken in for all partitions that a request names."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from kio.schema.errors import ErrorCode

from headrace.errors import HeadraceError
from headrace.kafka.share.deliveries import Acknowledgement, AcknowledgeType, Patience, Refused
from headrace.kafka.share.records import ShareKey

if TYPE_CHECKING:
    from collections.abc import Iterable
    from uuid import UUID

    from headrace.kafka.groups.settings import GroupSettings
    from headrace.kafka.messages import share_acknowledge, share_fetch
    from headrace.kafka.services import Services
    from headrace.kafka.share.deliveries import Deliveries
    from headrace.kafka.share.sessions import SharePartition

    Batch = share_acknowledge.AcknowledgementBatch | share_fetch.AcknowledgementBatch


class Verdict(NamedTuple):
    """What came of what was said of one partition."""

    error_code: ErrorCode = ErrorCode.none
    message: str | None = None


@dataclass(slots=True, kw_only=True)
class Acknowledging:
    """The acknowledgements of one request. Those of a partition are taken in as a whole, or not at all."""

    services: Services
    group_id: str
    member_id: str
    settings: GroupSettings
    is_renewal: bool
    """Whether the request says that it renews locks."""
    verdicts: dict[SharePartition, Verdict] = field(default_factory=dict)
    _changes: dict[ShareKey, Deliveries] = field(default_factory=dict)

    def take(self, topics: Iterable[share_acknowledge.AcknowledgeTopic | share_fetch.FetchTopic]) -> None:
        """Take in all that is said, and write it down."""
        said: dict[SharePartition, list[Batch]] = {}
        for topic in topics:
            for partition in topic.partitions:
                if partition.acknowledgement_batches and topic.topic_id is not None:
                    place = (topic.topic_id, partition.partition_index)
                    said.setdefault(place, []).extend(partition.acknowledgement_batches)
        self.verdicts = {place: self._heard(place, batches) for place, batches in said.items()}
        try:
            self.services.shares.write(self._changes)
        except HeadraceError as error:
            self.fail(error)

    def fail(self, error: HeadraceError) -> None:
        """Say of all that was taken in that it could not be kept."""
        for key in self._changes:
            self.verdicts[key.topic_id, key.partition] = Verdict(ErrorCode.kafka_storage_error, str(error))

    def _heard(self, place: tuple[UUID, int], batches: Iterable[Batch]) -> Verdict:
        key = ShareKey(self.group_id, *place)
        log = self.services.partition("", *place)
        if log is None:
            is_known = self.services.topic("", place[0]) is not None
            unknown = ErrorCode.unknown_topic_or_partition if is_known else ErrorCode.unknown_topic_id
            return Verdict(unknown)
        deliveries = self.services.shares.get(key)
        if deliveries is None:
            return Verdict(
                ErrorCode.unknown_topic_or_partition, "This server does not host this topic-partition."
            )
        said = [
            Acknowledgement(each.first_offset, each.last_offset, each.acknowledge_types) for each in batches
        ]
        if any(AcknowledgeType.RENEW in each.types for each in said):
            if not self.is_renewal:
                return Verdict(ErrorCode.invalid_request, "the request does not say that it renews locks")
            if not self.settings.share_renew_acknowledge_enable:
                return Verdict(
                    ErrorCode.invalid_record_state,
                    "Renewing acquisition locks is not enabled for the group.",
                )
        patience = Patience(
            delivery_count_max=self.settings.share_delivery_count_limit,
            renewed_until_ms=self.services.shares.now_ms() + self.settings.share_record_lock_duration_ms,
        )
        try:
            self._changes[key] = deliveries.advance(log.start_offset).acknowledge(
                self.member_id, said, patience
            )
        except Refused as refused:
            return Verdict(refused.error_code, str(refused))
        return Verdict()
