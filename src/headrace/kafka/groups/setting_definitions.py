"""Each setting of a group: what it is called, what it takes, what it does here.

Kafka takes most defaults from settings of the broker, and has two more for many of them: the least and the
most that a group may ask for. Those two are Kafka's defaults here, unless the broker's own value lies beyond
them, which then is the limit. So a broker that was started with shorter times lets groups have them, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from headrace.errors import ConfigError
from headrace.kafka.groups.offset_reset import OffsetReset
from headrace.log.setting_kinds import Choice, Kind, SettingType, SettingValue, Truth, int_kind

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSetting:
    """One setting."""

    name: str
    kind: Kind
    documentation: str
    config_field: str | None = None
    """The field of BrokerConfig that says what holds for a group for which nobody set anything."""
    has_broker_default: bool = True
    """Whether Kafka has a setting of the broker for that."""
    least: int | None = None
    """What Kafka lets groups ask for at least, unless told otherwise."""
    most: int | None = None

    @property
    def field(self) -> str:
        """The field of GroupSettings."""
        return self.name.replace(".", "_")

    @property
    def setting_type(self) -> SettingType:
        """The type, with Kafka's number."""
        return self.kind.setting_type

    @property
    def has_effect(self) -> bool:
        """Whether it does anything here."""
        return not self.documentation.startswith("Without effect")

    @property
    def broker_name(self) -> str | None:
        """What Kafka calls the broker's setting of the default."""
        return f"group.{self.name}" if self.has_broker_default else None

    @property
    def least_name(self) -> str:
        """What Kafka calls the broker's setting of the least."""
        return self._limit_name("min")

    @property
    def most_name(self) -> str:
        """What Kafka calls the broker's setting of the most."""
        return self._limit_name("max").replace("max.num.standby", "max.standby")

    def read(self, text: str) -> SettingValue:
        """Read a value; ConfigError says what is allowed."""
        try:
            return self.kind.read(text)
        except ValueError as error:
            raise ConfigError(f"Invalid value {text!r} for configuration {self.name}: use {error}") from error

    def _limit_name(self, limit: str) -> str:
        protocol, _, rest = self.name.partition(".")
        return f"group.{protocol}.{limit}.{rest}"


_NO_STREAMS_GROUPS: Final = "Without effect: there are no streams groups."
_AT_ONCE: Final = "Without effect: partitions are assigned anew as soon as there is a reason to."
_SESSION_MS: Final = (45_000, 60_000)
_HEARTBEAT_MS: Final = (5_000, 15_000)
_ASSIGNMENT_MS: Final = (0, 15_000)


def _number(
    name: str,
    minimum: int,
    documentation: str,
    *,
    config_field: str | None = None,
    limits: tuple[int | None, int | None] = (None, None),
) -> GroupSetting:
    least, most = limits
    return GroupSetting(
        name=name,
        kind=int_kind(minimum),
        documentation=documentation,
        config_field=config_field,
        least=least,
        most=most,
    )


def _without_broker_default(name: str, kind: Kind, documentation: str) -> GroupSetting:
    return GroupSetting(name=name, kind=kind, documentation=documentation, has_broker_default=False)


_DEFINITIONS: Final = (
    _number("consumer.assignment.interval.ms", 0, _AT_ONCE, limits=_ASSIGNMENT_MS),
    _number(
        "consumer.heartbeat.interval.ms",
        1,
        "How often a member of a group by the new protocol has to be heard.",
        config_field="consumer_heartbeat_interval_ms",
        limits=_HEARTBEAT_MS,
    ),
    _number(
        "consumer.session.timeout.ms",
        1,
        "After how long without a word a member of a group by the new protocol is given up.",
        config_field="consumer_session_timeout_ms",
        limits=_SESSION_MS,
    ),
    _number("share.assignment.interval.ms", 0, _AT_ONCE, limits=_ASSIGNMENT_MS),
    _without_broker_default(
        "share.auto.offset.reset",
        OffsetReset(),
        "Where a share group begins to read a partition. earliest: at its beginning. latest: at its end. "
        "by_duration:<duration>: at what came within this time, such as by_duration:PT1H30M.",
    ),
    _number(
        "share.delivery.count.limit",
        2,
        "How often a record is given to members of a share group at most.",
        config_field="share_delivery_count_limit",
        limits=(2, 10),
    ),
    _number(
        "share.heartbeat.interval.ms",
        1,
        "How often a member of a share group has to be heard.",
        config_field="share_heartbeat_interval_ms",
        limits=_HEARTBEAT_MS,
    ),
    _without_broker_default(
        "share.isolation.level",
        Choice(("read_committed", "read_uncommitted")),
        "read_committed: a share group gets records of transactions once they are committed. "
        "read_uncommitted: it gets all records, those of aborted transactions included.",
    ),
    _number(
        "share.partition.max.record.locks",
        100,
        "How many records of a partition a share group has in hand at most.",
        config_field="share_partition_record_lock_count_max",
        limits=(100, 4_000),
    ),
    _number(
        "share.record.lock.duration.ms",
        1_000,
        "How long a record belongs to the member of a share group that it was given to.",
        config_field="share_record_lock_duration_ms",
        limits=(15_000, 60_000),
    ),
    _without_broker_default(
        "share.renew.acknowledge.enable",
        Truth(),
        "Whether members of a share group may ask for more time for a record.",
    ),
    _number(
        "share.session.timeout.ms",
        1,
        "After how long without a word a member of a share group is given up.",
        config_field="share_session_timeout_ms",
        limits=_SESSION_MS,
    ),
    _number("streams.assignment.interval.ms", 0, _NO_STREAMS_GROUPS, limits=_ASSIGNMENT_MS),
    _number("streams.heartbeat.interval.ms", 1, _NO_STREAMS_GROUPS, limits=_HEARTBEAT_MS),
    _number("streams.initial.rebalance.delay.ms", 0, _NO_STREAMS_GROUPS),
    _number("streams.num.standby.replicas", 0, _NO_STREAMS_GROUPS, limits=(None, 2)),
    _number("streams.session.timeout.ms", 1, _NO_STREAMS_GROUPS, limits=_SESSION_MS),
)

GROUP_SETTINGS: Final[Mapping[str, GroupSetting]] = MappingProxyType(
    {setting.name: setting for setting in _DEFINITIONS}
)
"""Every setting by its name, in the order of names."""
