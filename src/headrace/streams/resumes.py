"""Queries that a driver has started again by itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """A query that failed for a reason that passes, and was started again from its checkpoint."""

    query: str
    reason: str
