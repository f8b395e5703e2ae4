"""Where a share group begins to read a partition of which it has no position yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.kafka.share.deliveries import Deliveries

if TYPE_CHECKING:
    from headrace.kafka.groups.settings import GroupSettings
    from headrace.log.partition import PartitionLog

EARLIEST: Final = "earliest"


def first_deliveries(log: PartitionLog, end_offset: int, settings: GroupSettings, now_ms: int) -> Deliveries:
    """Nothing delivered yet, from where `share.auto.offset.reset` says: by default, from the end."""
    if settings.share_auto_offset_reset == EARLIEST:
        return Deliveries(start_offset=log.start_offset)
    duration_ms = settings.share_reset_duration_ms
    if duration_ms is None:
        return Deliveries(start_offset=end_offset)
    found = log.offset_for_timestamp(now_ms - duration_ms)
    return Deliveries(start_offset=end_offset if found is None else min(found.offset, end_offset))
