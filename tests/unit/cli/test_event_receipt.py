"""What a receipt of forgetting says in sentences."""

from __future__ import annotations

from typing import Any

from headrace.cli.event_views import told_receipt

CLEAN: dict[str, Any] = {
    "is_forgotten": True,
    "is_key_destroyed": True,
    "readable_positions": [],
    "snapshots": [],
    "behind": [],
    "traces": [],
}
RECEIPT: dict[str, Any] = {
    "subject": "c-1",
    "forgotten_at": "2026-03-01T00:00:00Z",
    "position": 7,
    "event_count": 2,
    "streams": ["account-1"],
    "snapshots_dropped": 1,
    "is_repeat": False,
    "check": CLEAN,
}


def test_a_receipt_says_that_nothing_was_found() -> None:
    told = told_receipt(RECEIPT)

    assert told.startswith("c-1 is forgotten, at 2026-03-01T00:00:00Z: 2 events of 1 streams have")
    assert told.endswith("at position 7. The check has found nothing left")


def test_all_that_was_found_is_named_and_long_lists_are_cut() -> None:
    check = {
        **CLEAN,
        "is_key_destroyed": False,
        "readable_positions": list(range(1, 13)),
        "snapshots": ["account-1"],
        "behind": ["transfers", "owners"],
        "traces": [{"table": "owners__g1.owners", "column": "name", "row_count": 1}],
    }

    told = told_receipt({**RECEIPT, "is_repeat": True, "check": check})

    assert "had been forgotten before" in told
    assert told.endswith(
        "The check has found: the key is still there; events show something at 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 "
        "and 2 more; snapshots do of account-1; so does name of owners__g1.owners; transfers, owners have "
        "not heard of it yet"
    )
