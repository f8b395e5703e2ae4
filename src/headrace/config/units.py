"""Sizes and times in which settings are written."""

from __future__ import annotations

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB
HOUR_MS: Final = 3600 * 1000
DAY_MS: Final = 24 * HOUR_MS
LONG_MAX: Final = 2**63 - 1
"""Kafka's word for "without limit", where -1 is not."""
