"""Rows that leave an operator beside its results, as they are read back from their files."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headrace.streams.side_files import SideFiles
from headrace.streams.sinks import side_rows

pytestmark = pytest.mark.spark

AT = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)
STAMP = pa.timestamp("us", "UTC")
COLUMNS = {
    "text": pa.array(["Größe", None, ""]),
    "bytes": pa.array([b"\xff\x00", None, b""]),
    "number": pa.array([2**63 - 1, None, -1]),
    "fraction": pa.array([float("nan"), None, -0.5]),
    "money": pa.array([Decimal("12.34"), None, Decimal("-0.01")], pa.decimal128(10, 2)),
    "flag": pa.array([True, None, False]),
    "day": pa.array([date(9999, 12, 31), None, date(1970, 1, 1)]),
    "at": pa.array([AT, None, AT], STAMP),
    "clock": pa.array([AT.replace(tzinfo=None), None, AT.replace(tzinfo=None)], pa.timestamp("us")),
    "window": pa.array(
        [{"start": AT, "end": None}, None, {"start": AT, "end": AT}],
        pa.struct({"start": STAMP, "end": STAMP}),
    ),
    "tags": pa.array([["a", None], None, []]),
    "counts": pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.int64())),
}


def test_few_rows_are_read_as_many_are(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, files = pa.table(COLUMNS), SideFiles.of(tmp_path, "a window.late")
    files.write(7, "1", rows.slice(0, 2))
    files.write(7, "10", rows.slice(2))
    few = side_rows.read_parts(spark, files.parts(7))
    monkeypatch.setattr(side_rows, "READ_HERE_BYTES_MAX", 0)
    many = side_rows.read_parts(spark, files.parts(7))

    assert few.schema == many.schema
    told = [frame.selectExpr("to_json(struct(*)) AS told") for frame in (few, many)]
    assert len(set(told[0].collect())) == 3
    assert sorted(told[0].collect()) == sorted(told[1].collect())
