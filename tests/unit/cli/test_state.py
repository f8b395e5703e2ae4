"""What `headrace state` prints."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from headrace.cli.state import _print
from headrace.streams.buckets.kept_rows import KeptRow
from headrace.streams.state import KeptState

AT = datetime(2026, 1, 2, 12, tzinfo=UTC)
STATE = KeptState(
    batch=17,
    rows=(
        KeptRow(operator="spend", table="keys", row={"card": "a", "total": 6, "seen": [1, 2], "at": AT}),
        KeptRow(operator="spend", table="keys", row={"card": "b", "total": 7, "timers": {"timer": 5}}),
        KeptRow(operator="rank", table="top", row={"card": "a", "spent": Decimal("1.50")}),
    ),
)


def test_rows_are_listed_by_operator(capsys: pytest.CaptureFixture[str]) -> None:
    _print("spending", STATE, as_json=False)

    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == ["spending", "after", "batch", "17:", "3", "rows"]
    assert ["spend,", "keys:"] in lines
    assert ["card", "total", "seen", "at", "timers"] in lines
    assert ["rank,", "top:"] in lines
    assert ["a", "1.50"] in lines


def test_json_has_every_row_as_it_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    _print("spending", STATE, as_json=True)

    told = json.loads(capsys.readouterr().out)
    assert (told["pipeline"], told["batch"]) == ("spending", 17)
    assert told["rows"][0] == {
        "operator": "spend",
        "table": "keys",
        "row": {"card": "a", "total": 6, "seen": [1, 2], "at": "2026-01-02T12:00:00+00:00"},
    }
