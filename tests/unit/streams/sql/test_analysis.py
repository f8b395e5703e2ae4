"""What is asked of Spark's understanding of a query."""

from __future__ import annotations

from headrace.streams.sql.analysis import unique_names


def test_columns_of_one_name_are_numbered_whatever_their_capitals() -> None:
    assert unique_names(["id", "ID", "n", "id", "id_2"]) == ["id", "ID_2", "n", "id_3", "id_2_2"]
