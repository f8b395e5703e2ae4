"""What a checkpoint notes down of the ledgers that it has had."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.streams.claim import CLAIM, has_claimed, note_claim


def test_a_claim_is_that_of_one_query_and_of_what_it_has_written(tmp_path: Path) -> None:
    assert not has_claimed(tmp_path, "q", "totals")
    for target in ("totals", "totals", "more"):
        note_claim(tmp_path, "q", target)

    assert has_claimed(tmp_path, "q", "totals")
    assert has_claimed(tmp_path, "q", "more")
    assert not has_claimed(tmp_path, "q", "others")
    assert not has_claimed(tmp_path, "another", "totals")


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"query_id": "q"}', '{"query_id": "q", "targets": 7}'])
def test_a_note_that_can_not_be_read_claims_nothing_and_is_replaced(tmp_path: Path, content: str) -> None:
    (tmp_path / CLAIM).write_text(content)
    assert not has_claimed(tmp_path, "q", "totals")
    note_claim(tmp_path, "q", "totals")
    assert has_claimed(tmp_path, "q", "totals")
