"""What a shell offers."""

from __future__ import annotations

import pytest

from headrace.streams.sql.completion import candidates

TABLES = {"orders": ["id", "total"], "card-minutes": ["card_id"], "payments": ["paid at"]}


@pytest.mark.parametrize(
    ("line", "word", "offered"),
    [
        ("SELECT * FROM ", "", ["`card-minutes`", "orders", "payments"]),
        ("SELECT * FROM o", "o", ["orders"]),
        ("SELECT * FROM `c", "`c", ["`card-minutes`"]),
        ("describe p", "p", ["payments"]),
        ("SELECT 'x' FROM orders WHERE to", "to", ["total"]),
        ("SELECT 1 FROM payments WHERE pa", "pa", ["`paid at`"]),
        ("sel", "sel", ["select"]),
        ("SEL", "SEL", ["SELECT"]),
        ("SELECT cou", "cou", ["count"]),
        ("SELECT 'it is ", "nothing", []),
    ],
)
def test_what_fits_is_offered(line: str, word: str, offered: list[str]) -> None:
    assert candidates(line, word, list(TABLES), TABLES.__getitem__) == offered
