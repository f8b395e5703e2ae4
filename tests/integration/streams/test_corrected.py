"""Results that correct earlier ones, on static rows. On a stream, see test_fraud.py."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession

import headrace.streams as hr
from headrace.errors import PipelineError

pytestmark = pytest.mark.spark


@pytest.fixture
def versions(spark: SparkSession) -> DataFrame:
    rows = [("a", 1, True, 1), ("a", 3, True, 3), ("a", 2, False, 2), ("b", 1, True, 1), ("b", 2, False, 2)]
    return spark.createDataFrame(rows, "id string, evidence int, holds boolean, version int")


def test_in_batch_the_last_version_of_each_result_is_given_unless_it_is_withdrawn(
    versions: DataFrame,
) -> None:
    found = hr.corrected(versions, key="id", order_by="version", holds="holds")

    assert found.columns == ["id", "evidence", "holds"]
    assert [tuple(row) for row in found.collect()] == [("a", 3, True)]
    kept = hr.corrected(versions, key=["id"], order_by="version")
    assert sorted(tuple(row) for row in kept.collect()) == [("a", 3, True), ("b", 2, False)]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"key": ()}, "key is empty"),
        ({"key": "name"}, "no column 'name' among id, evidence, holds, version"),
        ({"order_by": "id"}, "'id' is the order of versions"),
        ({"beside": "id"}, "'id' is part of the key"),
        ({"holds": "evidence"}, "'evidence', which is int; it must be boolean"),
    ],
)
def test_columns_that_do_not_fit_are_named(versions: DataFrame, wrong: dict[str, str], says: str) -> None:
    with pytest.raises(PipelineError, match=says):
        hr.corrected(versions, **{"key": "id", "order_by": "version", **wrong})
