"""What `headrace topics alter` asks for, and how it is told to the broker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
)

from headrace.cli.client import result_of
from headrace.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Alteration:
    """Changes of one topic."""

    topic: str
    to_set: Mapping[str, str]
    to_unset: tuple[str, ...]
    partition_count: int | None

    def check(self, *, partition_count_now: int) -> None:
        """Raise where the broker need not be asked."""
        if not self.to_set and not self.to_unset and self.partition_count is None:
            raise ConfigError("nothing to alter: use --config KEY=VALUE, --unset KEY or --partitions N")
        both = set(self.to_set).intersection(self.to_unset)
        if both:
            raise ConfigError(f"{min(both)} is to be set and unset at once: choose one")
        if self.partition_count is not None and self.partition_count <= partition_count_now:
            raise ConfigError(
                f"topic {self.topic} has {partition_count_now} partitions: it can only grow, to "
                f"{partition_count_now + 1} or more"
            )

    def carry_out(self, admin: AdminClient, bootstrap: str, *, dry_run: bool) -> None:
        """Have the broker make the changes, or only check them."""
        if self.to_set or self.to_unset:
            resource = ConfigResource(
                ConfigResource.Type.TOPIC, self.topic, incremental_configs=self._entries()
            )
            altered = admin.incremental_alter_configs([resource], validate_only=dry_run)
            result_of(altered[resource], bootstrap)
        if self.partition_count is not None:
            grown = admin.create_partitions(
                [NewPartitions(self.topic, self.partition_count)], validate_only=dry_run
            )
            result_of(grown[self.topic], bootstrap)

    def changes(
        self, settings_before: Mapping[str, str | None], *, partition_count_now: int
    ) -> list[dict[str, object]]:
        """What changes, from what to what."""
        rows: list[dict[str, object]] = [
            {"what": key, "before": settings_before.get(key), "after": value}
            for key, value in self.to_set.items()
        ]
        rows += [
            {"what": key, "before": settings_before.get(key), "after": "(default)"} for key in self.to_unset
        ]
        if self.partition_count is not None:
            rows.append({"what": "partitions", "before": partition_count_now, "after": self.partition_count})
        return rows

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
