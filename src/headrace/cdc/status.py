"""What a capture does, written down by its process for whoever wants to know.

DATA/captures/<name>/status.json     one JSON object: the fields of CaptureStatus

snapshot     rows of tables are published, before the changes
streaming    changes are published as they come; snapshots may go on beside
paused       somebody has it wait
stopped      somebody asked it to stop
done         it was a snapshot only, and is complete
failed       it ended on an error, which `last_error` tells
crashed      never written: the file says that it runs, and its process is gone

Only the process that has the capture's lock writes, or one that finds none at work: a second one that waits
for the lock, and perhaps gives up, leaves what the first has written.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from headrace.cdc.positions import format_lsn, parse_lsn
from headrace.cdc.progress import Progress
from headrace.cdc.slot import Slot, check_slot, lag_warning
from headrace.cdc.state import CaptureState
from headrace.driver.process import ProcessId, parse_process
from headrace.errors import SlotLost

FILE_NAME: Final = "status.json"
WRITE_S: Final = 0.5
"""How often the file is written at most."""
LAST_ERROR_LENGTH_MAX: Final = 2000
_ENDED: Final = frozenset({"new", "stopped", "done", "failed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureStatus:
    """What a capture does and has done."""

    name: str
    state: str
    process: ProcessId | None = None
    updated_at: str | None = None
    lsn: str | None = None
    """Everything before it is published."""
    event_count: int = 0
    lag_bytes: int | None = None
    """How much of the database's log is not published."""
    kept_bytes: int | None = None
    """How much of it the database keeps because of the capture."""
    tables: tuple[dict[str, Any], ...] = field(default_factory=tuple)
    """Those whose snapshot is not complete: name, rows that are published, and about how many there are."""
    last_error: str | None = None

    def seen_now(self) -> CaptureStatus:
        """The same, with a state that holds although nobody was left to write it down."""
        if self.state in _ENDED or self.process is None or self.process.is_alive():
            return self
        told = f"its process, {self.process.pid}, was killed or crashed"
        return replace(self, state="crashed", last_error=self.last_error or told)

    def with_slot(self, slot_name: str, slot: Slot | None) -> CaptureStatus:
        """The same with what the database says of the slot: for a capture that does not look by itself."""
        if self.lsn is None:
            return self
        return replace(
            self,
            lag_bytes=None if slot is None else slot.lag_bytes,
            kept_bytes=None if slot is None else slot.kept_bytes,
            last_error=self.last_error or self._trouble(slot_name, slot),
        )

    def _trouble(self, slot_name: str, slot: Slot | None) -> str | None:
        assert self.lsn is not None
        # The file may be older than what is published, and confirmed is only what is.
        confirmed_lsn = (slot and slot.confirmed_lsn) or 0
        try:
            found = check_slot(self.name, slot_name, slot, max(parse_lsn(self.lsn), confirmed_lsn))
        except SlotLost as lost:
            return str(lost)
        return lag_warning(self.name, found)


class StatusFile(Progress):
    """Writes down what the capture of this process does."""

    def __init__(self, name: str, directory: Path) -> None:
        self._path = directory / FILE_NAME
        self._written_s = 0.0
        self._status = CaptureStatus(name=name, state="starting", process=ProcessId.own())
        self._is_locked = False
        self._write()

    def locked(self) -> None:
        """The capture is this process's alone."""
        self._is_locked = True
        self._write()

    def unlocked(self) -> None:
        """Another process may have it from now on."""
        self._is_locked = False

    def snapshot_begun(self, state: CaptureState) -> None:
        """The rows of the state's tables are about to be published."""
        self._told("snapshot", state)

    def chunk_published(self, state: CaptureState, table: str, row_count: int) -> None:
        """Some rows of a table were published."""
        del table, row_count
        self._told(self._status.state, state)

    def streaming(self, state: CaptureState) -> None:
        """Changes are streamed from here on."""
        self._told("streaming", state, at_once=True)

    def committed(self, state: CaptureState) -> None:
        """More is published."""
        self._told(self._status.state, state)

    def slot_seen(self, slot: Slot) -> None:
        """The database was asked how far behind the capture is."""
        self._status = replace(self._status, lag_bytes=slot.lag_bytes, kept_bytes=slot.kept_bytes)
        self._write_if_due()

    def paused(self) -> None:
        """It waits until somebody has it go on."""
        if self._status.state != "paused":
            self._status = replace(self._status, state="paused")
            self._write()

    def ended(self, state: str, error: BaseException | None = None) -> None:
        """It has stopped, is done, or has failed."""
        told = None if error is None else str(error)[:LAST_ERROR_LENGTH_MAX]
        self._status = replace(self._status, state=state, last_error=told)
        self._write()

    def _told(self, state: str, known: CaptureState, *, at_once: bool = False) -> None:
        is_new = state != self._status.state
        self._status = replace(
            self._status,
            state=state,
            lsn=format_lsn(known.lsn),
            event_count=known.event_count,
            tables=tuple(
                {"table": each.name, "rows": each.row_count, "estimate": each.estimate}
                for each in known.tables
            ),
        )
        if is_new or at_once:
            self._write()
        else:
            self._write_if_due()

    def _write_if_due(self) -> None:
        if time.monotonic() - self._written_s >= WRITE_S:
            self._write()

    def _is_anothers(self) -> bool:
        if self._is_locked:
            return False
        found = read_status(self._path.parent)
        is_own = found.process is None or found.process == self._status.process
        return not is_own and found.state not in _ENDED and found.seen_now().state != "crashed"

    def _write(self) -> None:
        if self._is_anothers():
            return
        self._written_s = time.monotonic()
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        new = self._path.with_suffix(".json~")
        new.write_text(json.dumps(asdict(replace(self._status, updated_at=now))))
        new.replace(self._path)


def read_status(directory: Path) -> CaptureStatus:
    """What is known of a capture; one that has never run is new."""
    try:
        told: dict[str, Any] = json.loads((directory / FILE_NAME).read_text())
        process = None if told["process"] is None else parse_process(told["process"])
        return CaptureStatus(**{**told, "process": process, "tables": tuple(told["tables"])})
    except (OSError, ValueError, TypeError, KeyError):
        # It is a view, and never needed to go on: the next status replaces what can't be read.
        return CaptureStatus(name=directory.name, state="new")
