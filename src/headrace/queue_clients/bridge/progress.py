"""What a bridge tells of itself. This one counts; what shows it to people does more."""

from __future__ import annotations


class BridgeProgress:
    """Counts what was handed over. Belongs to the bridge's event loop."""

    def __init__(self) -> None:
        self.written_count = 0
        self.recognised_count = 0
        self.refused_count = 0
        self.start_count = 0

    def ready(self, source: str, target: str) -> None:  # noqa: ARG002  # others show them
        """Everything is connected, and messages are taken from now on."""
        self.start_count += 1

    def handed_over(self, *, written: int, recognised: int = 0, refused: int = 0) -> None:
        """A batch is done."""
        self.written_count += written
        self.recognised_count += recognised
        self.refused_count += refused
