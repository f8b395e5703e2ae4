"""What holds for each group, at hand for those who ask at every request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.kafka.groups.settings import GroupSettings

if TYPE_CHECKING:
    from headrace.config import BrokerConfig
    from headrace.log.store import LogStore


class SettingsOfGroups:
    """Belongs to the event loop's thread."""

    def __init__(self, config: BrokerConfig, store: LogStore) -> None:
        self._store = store
        self._defaults = GroupSettings.of_broker(config)
        self._texts = store.overrides.groups
        self._settings: dict[str, GroupSettings] = {}
        """Of groups that have been asked for and have settings of their own."""

    def of(self, group_id: str) -> GroupSettings:
        """What holds for a group, whether there is such a group or not."""
        if self._texts is not self._store.overrides.groups:
            self._texts = self._store.overrides.groups
            self._settings.clear()
        texts = self._texts.get(group_id)
        if texts is None:
            return self._defaults
        if group_id not in self._settings:
            self._settings[group_id] = GroupSettings.parse(texts, self._defaults)
        return self._settings[group_id]
