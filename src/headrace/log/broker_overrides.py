"""What was set while the broker ran, but for topics: `broker-settings.json`.

    {
      "format": 1,
      "cluster": {"log.retention.ms": "1000"},
      "broker": {},
      "groups": {"billing": {"share.record.lock.duration.ms": "20000"}}
    }

The first two are broker-wide defaults of topic settings.
Kafka has two places for them: for all brokers, and for one; the second counts where both say something. The
names are those of Kafka's broker settings. A topic's own setting counts more than both, the configuration
that the broker was started with counts less.

Settings of groups are kept for who knows what they mean. Older versions wrote no `groups`: then no group has
any.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from headrace.errors import ConfigError, HeadraceError, StorageError
from headrace.log.durable_file import read_whole, write_durably
from headrace.log.topic_settings import TOPIC_SETTINGS, TopicSettings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from headrace.log.disk import Disk

FILE_NAME: Final = "broker-settings.json"
TEMPORARY_NAME: Final = ".broker-settings.unfinished"
_FORMAT: Final = 1

TOPIC_NAME_OF: Final[Mapping[str, str]] = MappingProxyType(
    {setting.broker_name: name for name, setting in TOPIC_SETTINGS.items() if setting.broker_name is not None}
)
"""By the name of a broker-wide default, the name of the topic setting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerOverrides:
    """What was set, as texts under the names of Kafka's broker settings."""

    cluster: Mapping[str, str] = field(default_factory=dict)
    broker: Mapping[str, str] = field(default_factory=dict)
    groups: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By group, what was set for it, under the names of Kafka's settings of groups."""

    def defaults(self, static: TopicSettings) -> TopicSettings:
        """What holds for a topic for which nobody set anything. Raises ConfigError for a bad value."""
        texts = {**self.cluster, **self.broker}
        for name, text in texts.items():
            if name not in TOPIC_NAME_OF:
                raise ConfigError(f"{name} can't be changed while the broker runs")
            try:
                TOPIC_SETTINGS[TOPIC_NAME_OF[name]].read(text)
            except ConfigError as error:
                raise ConfigError(f"{name} is a default of topics. {error}") from error
        return TopicSettings.parse({TOPIC_NAME_OF[name]: text for name, text in texts.items()}, static)


def read_overrides(data_dir: Path, disk: Disk) -> BrokerOverrides:
    """Read the file; nothing was set where there is none."""
    if FILE_NAME not in disk.names(data_dir):
        return BrokerOverrides()
    path = data_dir / FILE_NAME
    try:
        fields: dict[str, Any] = json.loads(read_whole(disk, path))
        if fields["format"] != _FORMAT:
            raise StorageError(f"{path} has format {fields['format']}; this version reads format {_FORMAT}")
        return BrokerOverrides(
            cluster=_texts(fields["cluster"]),
            broker=_texts(fields["broker"]),
            groups={str(name): _texts(texts) for name, texts in fields.get("groups", {}).items()},
        )
    except HeadraceError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StorageError(f"{path} can't be read ({error!r}); restore it from a copy") from error


def write_overrides(data_dir: Path, disk: Disk, overrides: BrokerOverrides) -> None:
    """Write the file, so that it survives a loss of power."""
    content = {
        "format": _FORMAT,
        "cluster": dict(overrides.cluster),
        "broker": dict(overrides.broker),
        "groups": {name: dict(texts) for name, texts in overrides.groups.items()},
    }
    data = json.dumps(content, indent=2).encode() + b"\n"
    write_durably(disk, data_dir / FILE_NAME, data, temporary_name=TEMPORARY_NAME)


def _texts(fields: dict[str, Any]) -> dict[str, str]:
    return {str(name): str(value) for name, value in fields.items()}
