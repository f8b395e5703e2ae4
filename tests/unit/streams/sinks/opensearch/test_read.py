"""How many rows of an index are read at once."""

from __future__ import annotations

import pytest

from headrace.streams.sinks.opensearch.read import PAGE_BYTES, ROWS_MAX, rows_at_once


@pytest.mark.parametrize(
    ("size_bytes", "row_count", "expected"),
    [
        (0, 0, ROWS_MAX),
        (300, 0, ROWS_MAX),
        (100 * ROWS_MAX, ROWS_MAX, ROWS_MAX),
        (PAGE_BYTES, 8, 8),
        (10 * PAGE_BYTES, 20, 2),
        (10 * PAGE_BYTES, 1, 1),
    ],
)
def test_a_page_has_as_many_rows_as_fit(size_bytes: int, row_count: int, expected: int) -> None:
    assert rows_at_once(size_bytes, row_count) == expected
