"""The settings of groups, under Kafka's names, with Kafka's rules and Kafka's defaults.

What somebody set for a group is kept as texts, whether there is such a group or not; everything else comes
from the broker's configuration. `GroupSettings.parse` puts the two together. `checked_texts` says what is
kept of what a client asks for, and refuses what Kafka refuses.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from headrace.errors import ConfigError
from headrace.kafka.groups.offset_reset import BY_DURATION, LATEST, reset_duration_ms
from headrace.kafka.groups.setting_definitions import GROUP_SETTINGS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.config import BrokerConfig
    from headrace.kafka.groups.setting_definitions import GroupSetting

GROUP_COUNT_MAX: Final = 1_000
"""How many groups may have settings of their own. One file has them all, and is written with each change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """What holds for one group. The fields have the names of Kafka's settings, with `_` for `.`."""

    consumer_assignment_interval_ms: int = 1_000
    consumer_heartbeat_interval_ms: int = 5_000
    consumer_session_timeout_ms: int = 45_000
    share_assignment_interval_ms: int = 1_000
    share_auto_offset_reset: str = LATEST
    share_delivery_count_limit: int = 5
    share_heartbeat_interval_ms: int = 5_000
    share_isolation_level: str = "read_uncommitted"
    share_partition_max_record_locks: int = 2_000
    share_record_lock_duration_ms: int = 30_000
    share_renew_acknowledge_enable: bool = True
    share_session_timeout_ms: int = 45_000
    streams_assignment_interval_ms: int = 1_000
    streams_heartbeat_interval_ms: int = 5_000
    streams_initial_rebalance_delay_ms: int = 3_000
    streams_num_standby_replicas: int = 0
    streams_session_timeout_ms: int = 45_000

    @classmethod
    def of_broker(cls, config: BrokerConfig) -> GroupSettings:
        """What holds for a group for which nobody set anything."""
        return cls(
            **{
                setting.field: getattr(config, setting.config_field)
                for setting in GROUP_SETTINGS.values()
                if setting.config_field is not None
            }
        )

    @classmethod
    def parse(cls, texts: Mapping[str, str], defaults: GroupSettings) -> GroupSettings:
        """What holds for a group for which this was set.

        Limits come from the broker's configuration, which may have changed since: as in Kafka, what is beyond
        them now counts as the limit. What another version may have kept and this one doesn't know counts
        for nothing.
        """
        given: dict[str, Any] = {}
        for name, text in texts.items():
            setting = GROUP_SETTINGS.get(name)
            if setting is not None:
                given[setting.field] = _within_limits(setting, setting.read(text), defaults)
        return replace(defaults, **given)

    def value_of(self, name: str) -> str:
        """The value of a setting, by Kafka's name, as text."""
        setting = GROUP_SETTINGS[name]
        return setting.kind.format(getattr(self, setting.field))

    @property
    def share_reset_duration_ms(self) -> int | None:
        """How far back a share group begins to read a partition; None where that is not told as a time."""
        reset = self.share_auto_offset_reset
        return reset_duration_ms(reset) if reset.startswith(BY_DURATION) else None


def limits_of(setting: GroupSetting, defaults: GroupSettings) -> tuple[int | None, int | None]:
    """The least and the most that a group may ask for."""
    value = getattr(defaults, setting.field)
    least = None if setting.least is None else min(setting.least, value)
    most = None if setting.most is None else max(setting.most, value)
    return least, most


def checked_texts(texts: Mapping[str, str], defaults: GroupSettings) -> dict[str, str]:
    """What is to be set for a group, as it is kept. ConfigError says what can't be, and what can."""
    for name in texts:
        if name not in GROUP_SETTINGS:
            raise ConfigError(f"Unknown group config name: {name}. Known are: {', '.join(GROUP_SETTINGS)}")
    given: dict[str, Any] = {name: GROUP_SETTINGS[name].read(text) for name, text in texts.items()}
    for name, value in given.items():
        _check_limits(GROUP_SETTINGS[name], value, defaults)
    settings = replace(defaults, **{GROUP_SETTINGS[name].field: value for name, value in given.items()})
    for protocol in ("consumer", "share", "streams"):
        _check_session(settings, protocol)
    return {name: settings.value_of(name) for name in given}


def _within_limits(setting: GroupSetting, value: Any, defaults: GroupSettings) -> Any:
    least, most = limits_of(setting, defaults)
    if least is not None and value < least:
        return least
    return most if most is not None and value > most else value


def _check_limits(setting: GroupSetting, value: Any, defaults: GroupSettings) -> None:
    least, most = limits_of(setting, defaults)
    if least is not None and value < least:
        raise ConfigError(
            f"{setting.name} is {value}: it must be greater than or equal to {setting.least_name}, "
            f"which is {least}"
        )
    if most is not None and value > most:
        raise ConfigError(
            f"{setting.name} is {value}: it must be less than or equal to {setting.most_name}, "
            f"which is {most}"
        )


def _check_session(settings: GroupSettings, protocol: str) -> None:
    session = GROUP_SETTINGS[f"{protocol}.session.timeout.ms"]
    heartbeat = GROUP_SETTINGS[f"{protocol}.heartbeat.interval.ms"]
    session_timeout_ms = getattr(settings, session.field)
    heartbeat_interval_ms = getattr(settings, heartbeat.field)
    if session_timeout_ms <= heartbeat_interval_ms:
        raise ConfigError(
            f"{session.name} is {session_timeout_ms}: it must be greater than {heartbeat.name}, "
            f"which is {heartbeat_interval_ms}"
        )
