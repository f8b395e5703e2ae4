"""Changes of the settings of a topic or a group, and how they are told to the broker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from headrace.cli.client import result_of
from headrace.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingChanges:
    """What is to be set, and what is to have its default back."""

    kind: ResourceType
    name: str
    to_set: Mapping[str, str]
    to_unset: tuple[str, ...]

    @classmethod
    def parse(
        cls, kind: ResourceType, name: str, config: Sequence[str] | None, unset: Sequence[str] | None
    ) -> SettingChanges:
        """Read what --config and --unset say; raise where the broker need not be asked."""
        to_set = dict(key_and_value(text) for text in config or ())
        both = set(to_set).intersection(unset or ())
        if both:
            raise ConfigError(f"{min(both)} is to be set and unset at once: choose one")
        return cls(kind=kind, name=name, to_set=to_set, to_unset=tuple(unset or ()))

    def __bool__(self) -> bool:
        return bool(self.to_set or self.to_unset)

    def carry_out(self, admin: AdminClient, bootstrap: str, *, dry_run: bool) -> None:
        """Have the broker make the changes, or only check them."""
        if self:
            resource = ConfigResource(self.kind, self.name, incremental_configs=self._entries())
            altered = admin.incremental_alter_configs([resource], validate_only=dry_run)
            result_of(altered[resource], bootstrap)

    def rows(self, before: Mapping[str, str | None]) -> list[dict[str, object]]:
        """What changes, from what to what."""
        rows: list[dict[str, object]] = [
            {"what": key, "before": before.get(key), "after": value} for key, value in self.to_set.items()
        ]
        return rows + [
            {"what": key, "before": before.get(key), "after": "(default)"} for key in self.to_unset
        ]

    def _entries(self) -> list[ConfigEntry]:
        to_set = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
            for key, value in self.to_set.items()
        ]
        # The library wants a value even for a setting that is taken back.
        to_unset = [
            ConfigEntry(key, "", incremental_operation=AlterConfigOpType.DELETE) for key in self.to_unset
        ]
        return to_set + to_unset


def settings_of(admin: AdminClient, kind: ResourceType, name: str, bootstrap: str) -> dict[str, ConfigEntry]:
    """The settings of a topic or a group, by name."""
    resource = ConfigResource(kind, name)
    return result_of(admin.describe_configs([resource])[resource], bootstrap)


def key_and_value(text: str) -> tuple[str, str]:
    """Read KEY=VALUE."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ConfigError(f"--config {text!r} is not KEY=VALUE, such as retention.ms=60000")
    return key, value
