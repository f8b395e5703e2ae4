"""The first and the last rows of a snapshot are told from the others."""

from __future__ import annotations

import pytest

from headrace.cdc.envelope import SnapshotPoint
from headrace.cdc.marking import marked

POINT = SnapshotPoint(marker="true", at_ns=1, lsn=2)


@pytest.mark.parametrize(
    ("row_count", "starts", "ends", "ends_all", "markers"),
    [
        (3, True, True, False, ["first_in_data_collection", "true", "last_in_data_collection"]),
        (3, True, False, False, ["first_in_data_collection", "true", "true"]),
        (3, False, True, True, ["true", "true", "last"]),
        (1, True, True, True, ["last"]),
        (1, True, False, False, ["first_in_data_collection"]),
        (0, True, True, True, []),
    ],
)
def test_rows_say_where_in_the_snapshot_they_are(
    row_count: int, starts: bool, ends: bool, ends_all: bool, markers: list[str]
) -> None:
    rows = [[b"%d" % number] for number in range(row_count)]
    made = list(marked(iter(rows), POINT, starts_table=starts, ends_table=ends, ends_all=ends_all))  # type: ignore[arg-type]
    assert [row for row, _ in made] == rows
    assert [point.marker for _, point in made] == markers
    assert {point.lsn for _, point in made} <= {2}
