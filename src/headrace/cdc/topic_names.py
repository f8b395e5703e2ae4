"""Names of topics that a capture has besides those of its tables."""

from __future__ import annotations


def state_topic_of(prefix: str) -> str:
    """What is published, for the capture itself: see state.py."""
    return f"{prefix}.capture"


def heartbeat_topic_of(prefix: str) -> str:
    """That the capture is there, and how far the database is."""
    return f"{prefix}.heartbeat"
