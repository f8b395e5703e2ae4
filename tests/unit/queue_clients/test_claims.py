"""Each claim of the page "Queue or log?" is a test."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_every_line_of_the_table_names_tests_that_exist() -> None:
    page = (ROOT / "docs" / "concepts" / "queue-or-log.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("|")][2:]
    places = [*(ROOT / "examples" / "queue_or_log" / "tests").glob("*.py")]
    places += (ROOT / "tests" / "integration" / "queue_clients").glob("*.py")
    known = {
        name for path in places for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)
    }
    assert len(rows) >= 8
    for row in rows:
        named = re.findall(r"`(test_\w+)`", row)
        assert named, row
        assert set(named) <= known, row
