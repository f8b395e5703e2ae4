"""How often, and after which pause, a command is decided anew."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headrace.errors import ConfigError

ATTEMPTS_MAX: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """A command whose append comes too late is decided again on what is new."""

    attempts: int = 10
    """How often it is tried at most; 1 is never again."""
    pause_ms: float = 1.0
    """Before the second attempt; each further pause is twice as long."""
    pause_ms_max: float = 100.0

    def __post_init__(self) -> None:
        if not 1 <= self.attempts <= ATTEMPTS_MAX:
            raise ConfigError(f"{self.attempts} attempts can't be: choose 1 to {ATTEMPTS_MAX}")
        if not 0 <= self.pause_ms <= self.pause_ms_max:
            raise ConfigError(f"a pause of {self.pause_ms} ms must lie between 0 and {self.pause_ms_max} ms")

    def pause_s(self, attempt: int, chance: float) -> float:
        """How long to wait after an attempt, counted from 1; `chance`, 0 to 1, keeps writers apart."""
        full_ms = min(self.pause_ms * 2.0 ** min(attempt - 1, 30), self.pause_ms_max)
        return full_ms * (0.5 + chance / 2) / 1000
