"""What is to be written to a topic."""

from __future__ import annotations

from typing import NamedTuple


class Record(NamedTuple):
    """One record. A tuple, because one is made for every row."""

    topic: str
    key: bytes | None
    """JSON of the row's key; none for rows of tables without one, and for truncations."""
    value: bytes | None
    """JSON; none for a tombstone."""
    headers: tuple[tuple[str, bytes], ...] = ()
