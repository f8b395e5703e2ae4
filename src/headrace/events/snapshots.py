"""Snapshots: states that were folded earlier, so that a long stream is not folded from its beginning."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotPolicy:
    """When a state is kept: after so many events, or once folding has cost so much. Either may be None."""

    every_events: int | None = 1_000
    every_ms: float | None = None
    """How long reading and folding what is new may take before a snapshot is worth it."""

    def __post_init__(self) -> None:
        if self.every_events is not None and self.every_events < 1:
            raise ConfigError(f"a snapshot every {self.every_events} events can't be: choose 1 or more")
        if self.every_ms is not None and self.every_ms < 0:
            raise ConfigError(f"a snapshot after {self.every_ms} ms can't be: choose 0 or more")
