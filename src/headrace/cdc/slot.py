"""What is known of a replication slot, and whether a capture may go on from it.

A slot is the database's promise to keep what a capture has not confirmed. A capture confirms nothing that is
not published together with its position, so this always holds:

    restart_lsn  ≤  confirmed_flush_lsn  ≤  position of the capture  ≤  end of the database's log

Where it does not, changes are missing, or the database is another one: nothing can be made up for by going
on, so the capture stops, and says what to do. The judgement is a pure function of what the database and the
capture's own topic say.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from headrace.cdc.positions import format_lsn
from headrace.config import MIB
from headrace.errors import ConfigError, SlotLost

WARN_AT_SHARE: Final = 0.5
"""What share of `max_slot_wal_keep_size` may be kept back before that is worth a warning."""
_GO_ON: Final = (
    "`headrace capture start {name} --new-snapshot` makes a new slot and publishes all rows anew; "
    "whoever reads the topics sees the rows again, and what was deleted meanwhile stays"
)


class WalStatus(Enum):
    """Whether the log that a slot needs is still there."""

    RESERVED = "reserved"
    EXTENDED = "extended"
    UNRESERVED = "unreserved"
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A row of pg_replication_slots, and how far the database is."""

    name: str
    plugin: str | None
    database: str | None
    current_database: str
    active_pid: int | None
    wal_status: WalStatus
    restart_lsn: int | None
    confirmed_lsn: int | None
    end_lsn: int
    """The end of the database's log."""
    keep_bytes_max: int | None
    """max_slot_wal_keep_size; None: as much as the disk holds."""

    @property
    def lag_bytes(self) -> int:
        """How much of the log the capture has not confirmed."""
        return max(0, self.end_lsn - self.confirmed_lsn) if self.confirmed_lsn is not None else 0

    @property
    def kept_bytes(self) -> int:
        """How much of the log the database keeps because of the slot."""
        return max(0, self.end_lsn - self.restart_lsn) if self.restart_lsn is not None else 0


def check_whose(name: str, slot: Slot) -> None:
    """Refuse a slot that no capture of this database can have made."""
    if slot.plugin != "pgoutput" or slot.database != slot.current_database:
        raise SlotLost(
            f"capture {name} can't use the replication slot {slot.name}: it is one of "
            f"{slot.plugin or 'no plugin'} for database {slot.database or '(none)'}. Remove the capture, "
            "which leaves that slot, and add it again with another --slot"
        )


def not_made_by(name: str, slot_name: str) -> ConfigError:
    """What to say of a slot that may be another's, and is left alone."""
    return ConfigError(
        f"a replication slot {slot_name} is there already, and capture {name} has not made it: name another "
        f"with --slot, or drop it: SELECT pg_drop_replication_slot('{slot_name}')"
    )


def check_slot(name: str, slot_name: str, slot: Slot | None, position_lsn: int) -> Slot:
    """Return the slot if the capture may go on from its position; else raise SlotLost."""
    published = f"Published is everything up to {format_lsn(position_lsn)}"
    if slot is None:
        raise SlotLost(
            f"capture {name} can't go on: its replication slot {slot_name} is gone. {published}; what was "
            f"changed since then is missing. {_GO_ON.format(name=name)}"
        )
    check_whose(name, slot)
    if slot.wal_status is WalStatus.LOST:
        raise SlotLost(
            f"capture {name} can't go on: the database has deleted log that its replication slot {slot_name} "
            f"needed (max_slot_wal_keep_size). {published}. {_GO_ON.format(name=name)}"
        )
    if slot.confirmed_lsn is not None and slot.confirmed_lsn > position_lsn:
        raise SlotLost(
            f"capture {name} can't go on: somebody else has read from its replication slot {slot_name}, up "
            f"to {format_lsn(slot.confirmed_lsn)}. {published}; what lies between is missing. Let nobody "
            f"else use the slot. {_GO_ON.format(name=name)}"
        )
    if slot.end_lsn < position_lsn:
        raise SlotLost(
            f"capture {name} can't go on: the database is at {format_lsn(slot.end_lsn)}, before what was "
            f"published, so it was restored or is another one. {published}. {_GO_ON.format(name=name)}"
        )
    return slot


def lag_warning(name: str, slot: Slot) -> str | None:
    """What to say before the slot is lost; None where there is nothing to worry about."""
    kept = f"the database keeps {slot.kept_bytes // MIB} MiB of its log for capture {name}"
    if slot.wal_status is WalStatus.UNRESERVED:
        return f"{kept}, more than it has to, and may delete it at any moment: the slot would be lost"
    limit = slot.keep_bytes_max
    if limit is not None and slot.kept_bytes > WARN_AT_SHARE * limit:
        return (
            f"{kept}; at {limit // MIB} MiB (max_slot_wal_keep_size) the slot is lost. Long transactions and "
            "captures that do not run hold it back"
        )
    return None
