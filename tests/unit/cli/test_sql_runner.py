"""What runs the statements of `headrace sql`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import PySparkException

from headrace.cli.sql_runner import Asked, Runner
from headrace.errors import SqlError
from headrace.streams.spans import OPEN
from headrace.streams.sql.statements import Query


@pytest.mark.parametrize("is_live", [False, True])
def test_what_spark_says_of_a_query_is_an_error_of_ours(is_live: bool) -> None:
    def fail(_sql: str, **_options: Any) -> None:
        raise PySparkException("[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012\nat java.lang.Thread")

    asked = Asked(format="json", limit=None, is_live=is_live, begin=OPEN, finish=OPEN)
    runner = Runner(SimpleNamespace(bounded=fail, live=fail), asked)  # type: ignore[arg-type] # it stands in
    with pytest.raises(SqlError) as refusal:
        runner.run(Query(sql="SELECT 1 / 0"))
    assert str(refusal.value) == "the query failed: Division by zero."
