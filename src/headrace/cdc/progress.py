"""What a running capture tells of itself. The methods do nothing; whoever wants to know overrides some."""

from __future__ import annotations

from headrace.cdc.slot import Slot
from headrace.cdc.state import CaptureState


class Progress:
    """Hears what happens, on the capture's thread. Must not take long."""

    def locked(self) -> None:
        """The capture is this process's alone, until it is unlocked."""

    def unlocked(self) -> None:
        """Another process may have it from now on."""

    def snapshot_begun(self, state: CaptureState) -> None:
        """The rows of the state's tables are about to be published."""

    def chunk_published(self, state: CaptureState, table: str, row_count: int) -> None:
        """Some rows of a table were published."""

    def streaming(self, state: CaptureState) -> None:
        """Changes are streamed from here on."""

    def committed(self, state: CaptureState) -> None:
        """More is published."""

    def slot_seen(self, slot: Slot) -> None:
        """The database was asked how far behind the capture is."""

    def paused(self) -> None:
        """It waits until somebody has it go on."""
