"""The settings of topics, of groups and of the broker, with Kafka's names and the values that are true here.

A value comes from the first of these places that has one; the places are a setting's synonyms:

    topic      set for the topic itself
    group      set for the group itself
    broker     set for this broker while it ran
    cluster    set for all brokers while they ran
    static     given to the broker when it was started
    default    what holds when nobody says anything

What the broker was started with can't be changed while it runs, except for the defaults of topics. Nothing is
listed that does not hold.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from headrace.config import BrokerConfig
from headrace.kafka.groups.setting_definitions import GROUP_SETTINGS
from headrace.kafka.groups.settings import GroupSettings, limits_of
from headrace.kafka.services import NODE_ID
from headrace.log.broker_overrides import TOPIC_NAME_OF
from headrace.log.setting_kinds import SettingType
from headrace.log.topic_settings import TOPIC_SETTINGS, TopicSettings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from headrace.kafka.groups.setting_definitions import GroupSetting
    from headrace.log.store import LogStore
    from headrace.log.topic_settings import TopicSetting


class Source(IntEnum):
    """Where a value comes from, with Kafka's numbers."""

    TOPIC = 1
    BROKER = 2
    CLUSTER = 3
    STATIC = 4
    DEFAULT = 5
    GROUP = 8


@dataclass(frozen=True, slots=True)
class Synonym:
    """A place that has a value for a setting."""

    name: str
    value: str
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting, the value that holds, and all places that have one, the first of them being it."""

    name: str
    value: str
    kind: SettingType
    source: Source
    is_read_only: bool
    synonyms: tuple[Synonym, ...] = ()
    documentation: str


@dataclass(frozen=True, slots=True)
class FixedSetting:
    """A setting of the broker that can't be changed while it runs."""

    name: str
    kind: SettingType
    origin: str
    """The field of BrokerConfig, or `=` and the value that always holds."""
    documentation: str

    def value(self, config: BrokerConfig) -> str:
        """The value that holds."""
        return _text(getattr(config, self.origin)) if self._is_field else self.origin.removeprefix("=")

    @property
    def default(self) -> str:
        """The value that holds when nobody says anything."""
        return _text(_CONFIG_DEFAULTS[self.origin]) if self._is_field else self.origin.removeprefix("=")

    @property
    def _is_field(self) -> bool:
        return not self.origin.startswith("=")


_GROUP_DEFAULTS: Final = GroupSettings()
_CONFIG_DEFAULTS: Final = {field.name: field.default for field in fields(BrokerConfig)}
_BOOLEAN, _INT, _LONG = SettingType.BOOLEAN, SettingType.INT, SettingType.LONG
_SHORT = SettingType.SHORT

FIXED_SETTINGS: Final = (
    FixedSetting(
        "auto.create.topics.enable",
        _BOOLEAN,
        "auto_create_topics",
        "Whether asking for the metadata of an unknown topic creates it.",
    ),
    FixedSetting("broker.id", _INT, f"={NODE_ID}", "The number of this broker: there is one."),
    FixedSetting(
        "connections.max.idle.ms",
        _LONG,
        "connection_idle_ms_max",
        "A connection on which nothing happens for longer is closed.",
    ),
    FixedSetting("default.replication.factor", _INT, "=1", "How many replicas a topic gets."),
    FixedSetting("delete.topic.enable", _BOOLEAN, "=true", "Whether topics can be deleted."),
    FixedSetting("fetch.max.bytes", _INT, "fetch_bytes_max", "The most that one fetch answers with."),
    FixedSetting(
        "group.consumer.heartbeat.interval.ms",
        _INT,
        "consumer_heartbeat_interval_ms",
        "How often a member of a group by the new protocol has to be heard.",
    ),
    FixedSetting(
        "group.consumer.max.size", _INT, "group_member_count_max", "How many members a group may have."
    ),
    FixedSetting(
        "group.consumer.migration.policy",
        SettingType.STRING,
        "=disabled",
        "Whether a group may change its protocol while it has members.",
    ),
    FixedSetting(
        "group.consumer.session.timeout.ms",
        _INT,
        "consumer_session_timeout_ms",
        "After how long without a word a member of a group by the new protocol is given up.",
    ),
    FixedSetting(
        "group.initial.rebalance.delay.ms",
        _INT,
        "group_initial_rebalance_delay_ms",
        "How long an empty group waits for more members before its first assignment.",
    ),
    FixedSetting(
        "group.max.session.timeout.ms",
        _INT,
        "session_timeout_ms_max",
        "The longest session timeout that a group member may ask for.",
    ),
    FixedSetting("group.max.size", _INT, "group_member_count_max", "How many members a group may have."),
    FixedSetting(
        "group.min.session.timeout.ms",
        _INT,
        "session_timeout_ms_min",
        "The shortest session timeout that a group member may ask for.",
    ),
    FixedSetting(
        "group.share.delivery.count.limit",
        _INT,
        "share_delivery_count_limit",
        "How often a record is given to members of a share group at most.",
    ),
    FixedSetting(
        "group.share.heartbeat.interval.ms",
        _INT,
        "share_heartbeat_interval_ms",
        "How often a member of a share group has to be heard.",
    ),
    FixedSetting(
        "group.share.max.share.sessions",
        _INT,
        "share_session_count_max",
        "How many share sessions there may be.",
    ),
    FixedSetting(
        "group.share.max.size", _INT, "group_member_count_max", "How many members a group may have."
    ),
    FixedSetting(
        "group.share.partition.max.record.locks",
        _INT,
        "share_partition_record_lock_count_max",
        "How many records of a partition a share group has in hand at most.",
    ),
    FixedSetting(
        "group.share.record.lock.duration.ms",
        _INT,
        "share_record_lock_duration_ms",
        "How long a record belongs to the member of a share group that it was given to.",
    ),
    FixedSetting(
        "group.share.session.timeout.ms",
        _INT,
        "share_session_timeout_ms",
        "After how long without a word a member of a share group is given up.",
    ),
    FixedSetting(
        "max.connections", _INT, "connection_count_max", "Connections beyond this number are closed at once."
    ),
    FixedSetting(
        "max.connections.per.ip",
        _INT,
        "connection_count_per_address_max",
        "Connections from one address beyond this number are closed at once.",
    ),
    FixedSetting(
        "max.incremental.fetch.session.cache.slots",
        _INT,
        "fetch_session_count_max",
        "How many fetch sessions are kept.",
    ),
    FixedSetting("node.id", _INT, f"={NODE_ID}", "The number of this broker: there is one."),
    FixedSetting(
        "num.partitions",
        _INT,
        "default_partition_count",
        "How many partitions a topic gets when nobody says.",
    ),
    FixedSetting(
        "offset.metadata.max.bytes",
        _INT,
        "offset_metadata_bytes_max",
        "The longest text that may be committed with an offset.",
    ),
    FixedSetting(
        "offsets.retention.check.interval.ms",
        _LONG,
        "offsets_check_interval_ms",
        "How often offsets are looked through for those that have expired.",
    ),
    FixedSetting(
        "offsets.retention.minutes",
        _INT,
        "offsets_retention_minutes",
        "After how long without a member or a commit the offsets of a group expire.",
    ),
    FixedSetting("offsets.topic.num.partitions", _INT, "=1", "How many partitions __consumer_offsets has."),
    FixedSetting("offsets.topic.replication.factor", _SHORT, "=1", "The replicas of __consumer_offsets."),
    FixedSetting(
        "socket.request.max.bytes",
        _INT,
        "frame_bytes_max",
        "A larger request closes its connection before anything is allocated.",
    ),
    FixedSetting(
        "transaction.max.timeout.ms",
        _INT,
        "transaction_timeout_ms_max",
        "The longest that a producer may ask a transaction to take before the broker aborts it.",
    ),
    FixedSetting(
        "transaction.state.log.num.partitions", _INT, "=1", "How many partitions __transaction_state has."
    ),
    FixedSetting(
        "transaction.state.log.replication.factor", _SHORT, "=1", "The replicas of __transaction_state."
    ),
    FixedSetting(
        "transactional.id.expiration.ms",
        _INT,
        "transactional_id_expiration_ms",
        "A transactional id that no producer has used for so long is forgotten.",
    ),
)


def topic_settings(store: LogStore, config: Mapping[str, str]) -> Mapping[str, Setting]:
    """What holds for a topic for which this was set."""
    own = TopicSettings.parse(config, store.defaults)
    found = {}
    for name, definition in TOPIC_SETTINGS.items():
        if not definition.is_internal or name in config:
            set_here = (Synonym(name, own.value_of(name), Source.TOPIC),) if name in config else ()
            found[name] = _topic_setting(store, definition, own, set_here)
    return found


def group_settings(config: BrokerConfig, texts: Mapping[str, str]) -> Mapping[str, Setting]:
    """What holds for a group for which this was set."""
    defaults = GroupSettings.of_broker(config)
    own = GroupSettings.parse(texts, defaults)
    found = {}
    for name, definition in GROUP_SETTINGS.items():
        set_here = (Synonym(name, own.value_of(name), Source.GROUP),) if name in texts else ()
        synonyms = (
            *set_here,
            *_static_synonyms(
                definition.broker_name or name, defaults.value_of(name), _GROUP_DEFAULTS.value_of(name)
            ),
        )
        found[name] = Setting(
            name=name,
            value=own.value_of(name),
            kind=definition.setting_type,
            source=synonyms[0].source,
            is_read_only=False,
            synonyms=synonyms,
            documentation=definition.documentation,
        )
    return found


def broker_settings(config: BrokerConfig, store: LogStore) -> Mapping[str, Setting]:
    """What holds for the broker: the defaults of topics, which can be changed, and the rest, which can't."""
    found = [_default_setting(store, name) for name in TOPIC_NAME_OF]
    found += [_fixed_setting(config, fixed) for fixed in FIXED_SETTINGS]
    for definition in GROUP_SETTINGS.values():
        if definition.has_effect:
            found += _limits(config, definition)
    return {setting.name: setting for setting in sorted(found, key=lambda setting: setting.name)}


def cluster_settings(store: LogStore) -> Mapping[str, Setting]:
    """What was set for all brokers while they ran."""
    found = {}
    for name, value in store.overrides.cluster.items():
        definition = TOPIC_SETTINGS[TOPIC_NAME_OF[name]]
        found[name] = Setting(
            name=name,
            value=value,
            kind=definition.setting_type,
            source=Source.CLUSTER,
            is_read_only=False,
            synonyms=(Synonym(name, value, Source.CLUSTER),),
            documentation=definition.documentation,
        )
    return found


def _topic_setting(
    store: LogStore, definition: TopicSetting, own: TopicSettings, set_here: tuple[Synonym, ...]
) -> Setting:
    synonyms = set_here + _default_synonyms(store, definition)
    return Setting(
        name=definition.name,
        value=own.value_of(definition.name),
        kind=definition.setting_type,
        source=synonyms[0].source if synonyms else Source.DEFAULT,
        is_read_only=False,
        synonyms=synonyms,
        documentation=definition.documentation,
    )


def _default_setting(store: LogStore, broker_name: str) -> Setting:
    definition = TOPIC_SETTINGS[TOPIC_NAME_OF[broker_name]]
    synonyms = _default_synonyms(store, definition)
    return Setting(
        name=broker_name,
        value=store.defaults.value_of(definition.name),
        kind=definition.setting_type,
        source=synonyms[0].source,
        is_read_only=False,
        synonyms=synonyms,
        documentation=f"The default of {definition.name}. {definition.documentation}",
    )


def _default_synonyms(store: LogStore, definition: TopicSetting) -> tuple[Synonym, ...]:
    name = definition.broker_name
    if name is None:
        return ()
    static = store.static_defaults.value_of(definition.name)
    return (
        *(
            Synonym(name, texts[name], source)
            for texts, source in (
                (store.overrides.broker, Source.BROKER),
                (store.overrides.cluster, Source.CLUSTER),
            )
            if name in texts
        ),
        *_static_synonyms(name, static, definition.default),
    )


def _fixed_setting(config: BrokerConfig, fixed: FixedSetting) -> Setting:
    synonyms = _static_synonyms(fixed.name, fixed.value(config), fixed.default)
    return Setting(
        name=fixed.name,
        value=fixed.value(config),
        kind=fixed.kind,
        source=synonyms[0].source,
        is_read_only=True,
        synonyms=synonyms,
        documentation=fixed.documentation,
    )


def _limits(config: BrokerConfig, definition: GroupSetting) -> Iterator[Setting]:
    """What groups may ask for, as settings of the broker."""
    names = (definition.least_name, definition.most_name)
    now = limits_of(definition, GroupSettings.of_broker(config))
    by_default = limits_of(definition, _GROUP_DEFAULTS)
    for name, limit, default, word in zip(names, now, by_default, ("least", "most"), strict=True):
        if limit is not None:
            synonyms = _static_synonyms(name, str(limit), str(default))
            yield Setting(
                name=name,
                value=str(limit),
                kind=definition.setting_type,
                source=synonyms[0].source,
                is_read_only=True,
                synonyms=synonyms,
                documentation=f"The {word} that {definition.name} of a group may be.",
            )


def _static_synonyms(name: str, static: str, default: str) -> tuple[Synonym, ...]:
    given = () if static == default else (Synonym(name, static, Source.STATIC),)
    return (*given, Synonym(name, default, Source.DEFAULT))


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
