"""What `hr.aggregate` makes of the names that it is given."""

from __future__ import annotations

import pytest
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from headrace.errors import PipelineError
from headrace.streams.aggregate import aggregate, check_names
from headrace.streams.windows.exact import Count


class _Frame:
    """As much of a changelog as is looked at before anything is computed."""

    columns = ("id", "_weight")
    schema = StructType([StructField("id", StringType()), StructField("_weight", IntegerType())])


@pytest.mark.parametrize(
    ("by", "name"), [(("a", "a"), "a"), (("a",), "a"), (("a",), "_weight"), (("_changed_at",), "n")]
)
def test_two_columns_of_one_name_are_refused(by: tuple[str, ...], name: str) -> None:
    with pytest.raises(PipelineError, match=r"two columns of its result are called \w+: use \.alias"):
        check_names(by, [Count(name=name)])


def test_the_group_of_all_rows_has_a_column_that_no_aggregate_may_take() -> None:
    with pytest.raises(PipelineError, match="two columns of its result are called all"):
        aggregate(_Frame(), Count(name="all"))  # type: ignore[arg-type] # it is refused before rows are read
