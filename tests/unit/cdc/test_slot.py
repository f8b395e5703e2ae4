"""Whether a capture may go on from a slot, and what it says where it may not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.cdc.slot import Slot, WalStatus, check_slot, lag_warning
from headrace.config import MIB
from headrace.errors import SlotLost

SLOT = Slot(
    name="s",
    plugin="pgoutput",
    database="shop",
    current_database="shop",
    active_pid=None,
    wal_status=WalStatus.RESERVED,
    restart_lsn=100,
    confirmed_lsn=200,
    end_lsn=1000,
    keep_bytes_max=None,
)


def test_a_capture_goes_on_from_a_slot_that_is_not_past_what_it_has_published() -> None:
    for position in (200, 300, 1000):
        assert check_slot("shop", "s", SLOT, position) is SLOT


@pytest.mark.parametrize(
    ("slot", "words"),
    [
        (None, "is gone"),
        (replace(SLOT, wal_status=WalStatus.LOST), "max_slot_wal_keep_size"),
        (replace(SLOT, confirmed_lsn=301), "somebody else has read from its replication slot s, up to 0/12D"),
        (replace(SLOT, end_lsn=299), "it was restored or is another one"),
    ],
)
def test_a_slot_that_has_lost_changes_stops_the_capture_and_says_how_to_go_on(
    slot: Slot | None, words: str
) -> None:
    with pytest.raises(SlotLost, match=words) as stopped:
        check_slot("shop", "s", slot, 300)
    assert "0/12C" in str(stopped.value)
    assert "headrace capture start shop --new-snapshot" in str(stopped.value)


@pytest.mark.parametrize("change", [{"plugin": "test_decoding"}, {"database": "other"}])
def test_a_slot_of_another_kind_or_database_is_refused(change: dict[str, str]) -> None:
    with pytest.raises(SlotLost, match="with another --slot"):
        check_slot("shop", "s", replace(SLOT, **change), 300)  # type: ignore[arg-type]


def test_how_far_behind_is_told_in_bytes() -> None:
    assert (SLOT.lag_bytes, SLOT.kept_bytes) == (800, 900)
    assert replace(SLOT, restart_lsn=None, confirmed_lsn=None).kept_bytes == 0


def test_there_is_a_warning_before_the_slot_is_lost() -> None:
    large = replace(SLOT, end_lsn=100 + 600 * MIB)
    assert lag_warning("shop", large) is None
    assert lag_warning("shop", replace(large, keep_bytes_max=2000 * MIB)) is None
    limited = lag_warning("shop", replace(large, keep_bytes_max=1000 * MIB))
    assert limited is not None
    assert "600 MiB" in limited
    assert "at 1000 MiB" in limited
    unreserved = lag_warning("shop", replace(large, wal_status=WalStatus.UNRESERVED))
    assert unreserved is not None
    assert "at any moment" in unreserved
