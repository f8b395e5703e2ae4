"""The settings of topics and of the broker, under Kafka's names, with the values that are true here.

Nothing is listed that does not hold, and nothing can be changed yet: a client that asks for another value
is refused instead of being told yes and given no.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from headrace.kafka.services import NODE_ID

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.config import BrokerConfig


class SettingType(IntEnum):
    """The numbers of Kafka's configuration types."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


STATIC_BROKER_SOURCE: Final = 4
DEFAULT_SOURCE: Final = 5
UNLIMITED: Final = "-1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting and the value that holds."""

    name: str
    value: str
    kind: SettingType
    source: int = DEFAULT_SOURCE
    is_read_only: bool = True


@lru_cache(maxsize=16)
def topic_settings(config: BrokerConfig) -> Mapping[str, Setting]:
    """What holds for every topic."""
    return _by_name(
        _setting("cleanup.policy", "delete", SettingType.LIST),
        _setting("compression.type", "producer", SettingType.STRING),
        _setting("max.message.bytes", str(config.message_bytes_max), SettingType.INT, STATIC_BROKER_SOURCE),
        _setting("message.timestamp.type", "CreateTime", SettingType.STRING),
        _setting("min.insync.replicas", "1", SettingType.INT),
        _setting("retention.bytes", UNLIMITED, SettingType.LONG),
        _setting("retention.ms", UNLIMITED, SettingType.LONG),
        _setting("segment.bytes", str(config.log.segment_bytes_max), SettingType.INT, STATIC_BROKER_SOURCE),
        _setting(
            "index.interval.bytes",
            str(config.log.index_interval_bytes),
            SettingType.INT,
            STATIC_BROKER_SOURCE,
        ),
        _setting("unclean.leader.election.enable", "false", SettingType.BOOLEAN),
    )


@lru_cache(maxsize=16)
def broker_settings(config: BrokerConfig) -> Mapping[str, Setting]:
    """What holds for the broker."""
    given = STATIC_BROKER_SOURCE
    return _by_name(
        _setting(
            "auto.create.topics.enable", str(config.auto_create_topics).lower(), SettingType.BOOLEAN, given
        ),
        _setting("broker.id", str(NODE_ID), SettingType.INT),
        _setting("node.id", str(NODE_ID), SettingType.INT),
        _setting("default.replication.factor", "1", SettingType.INT),
        _setting("delete.topic.enable", "true", SettingType.BOOLEAN),
        _setting("fetch.max.bytes", str(config.fetch_bytes_max), SettingType.INT, given),
        _setting(
            "group.initial.rebalance.delay.ms",
            str(config.group_initial_rebalance_delay_ms),
            SettingType.INT,
            given,
        ),
        _setting("group.max.session.timeout.ms", str(config.session_timeout_ms_max), SettingType.INT, given),
        _setting("group.min.session.timeout.ms", str(config.session_timeout_ms_min), SettingType.INT, given),
        _setting("log.retention.bytes", UNLIMITED, SettingType.LONG),
        _setting("log.retention.ms", UNLIMITED, SettingType.LONG),
        _setting("log.segment.bytes", str(config.log.segment_bytes_max), SettingType.INT, given),
        _setting("max.connections", str(config.connection_count_max), SettingType.INT, given),
        _setting("message.max.bytes", str(config.message_bytes_max), SettingType.INT, given),
        _setting("min.insync.replicas", "1", SettingType.INT),
        _setting("num.partitions", str(config.default_partition_count), SettingType.INT, given),
        _setting("offsets.topic.num.partitions", "1", SettingType.INT),
        _setting("offsets.topic.replication.factor", "1", SettingType.INT),
        _setting("socket.request.max.bytes", str(config.frame_bytes_max), SettingType.INT, given),
    )


def _setting(name: str, value: str, kind: SettingType, source: int = DEFAULT_SOURCE) -> Setting:
    return Setting(name=name, value=value, kind=kind, source=source)


def _by_name(*settings: Setting) -> Mapping[str, Setting]:
    return {setting.name: setting for setting in settings}
