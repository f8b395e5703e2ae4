"""What clients have written to and read from a partition since it was opened."""

from __future__ import annotations


class Traffic:
    """Counted by whoever serves the clients, on one thread; whoever reads may be a moment behind."""

    __slots__ = ("fetched_bytes", "produced_bytes", "produced_record_count")

    def __init__(self) -> None:
        self.produced_record_count = 0
        self.produced_bytes = 0
        self.fetched_bytes = 0
