"""What `headrace topics alter` asks for, and how it is told to the broker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka.admin import AdminClient, NewPartitions

from headrace.cli.client import result_of
from headrace.cli.setting_changes import SettingChanges
from headrace.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Alteration:
    """Changes of one topic."""

    settings: SettingChanges
    partition_count: int | None

    def check(self, *, partition_count_now: int) -> None:
        """Raise where the broker need not be asked."""
        if not self.settings and self.partition_count is None:
            raise ConfigError("nothing to alter: use --config KEY=VALUE, --unset KEY or --partitions N")
        if self.partition_count is not None and self.partition_count <= partition_count_now:
            raise ConfigError(
                f"topic {self.settings.name} has {partition_count_now} partitions: it can only grow, to "
                f"{partition_count_now + 1} or more"
            )

    def carry_out(self, admin: AdminClient, bootstrap: str, *, dry_run: bool) -> None:
        """Have the broker make the changes, or only check them."""
        self.settings.carry_out(admin, bootstrap, dry_run=dry_run)
        if self.partition_count is not None:
            topic = self.settings.name
            grown = admin.create_partitions(
                [NewPartitions(topic, self.partition_count)], validate_only=dry_run
            )
            result_of(grown[topic], bootstrap)

    def changes(
        self, settings_before: Mapping[str, str | None], *, partition_count_now: int
    ) -> list[dict[str, object]]:
        """What changes, from what to what."""
        rows = self.settings.rows(settings_before)
        if self.partition_count is not None:
            rows.append({"what": "partitions", "before": partition_count_now, "after": self.partition_count})
        return rows
