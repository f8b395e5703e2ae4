"""What operators keep of a key, out of the tables that a checkpoint holds."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headrace.errors import PipelineError
from headrace.streams.buckets.kept_rows import kept_rows, parse_key
from headrace.streams.buckets.tables import Owner, write_kept, write_table

ONE = Owner(operator="counts", by=("card",), bucket_count=2)
TWO = Owner(operator="pairs", by=("card", "shop"), bucket_count=2)
TIMERS = [[{"name": "timer", "due_us": 5}], []]
TABLES = [
    ("keys", write_table(pa.table({"card": ["a", "b"], "n": [1, 2], "_timers": TIMERS}), ONE.metadata)),
    ("time", write_table(pa.table({"watermark_us": [7]}), ONE.metadata)),
    ("keys", write_table(pa.table({"card": ["a", "c"], "n": [3, 4]}), ONE.metadata)),
]
PAIRS = [("keys", write_table(pa.table({"card": ["a", "a"], "shop": [1, 2], "n": [5, 6]}), TWO.metadata))]


def test_the_rows_of_a_key_are_found_in_all_tables_that_have_it() -> None:
    found = kept_rows(TABLES, parse_key(["a"]), limit=10)

    assert [row.row for row in found] == [
        {"card": "a", "n": 1, "timers": {"timer": 5}},
        {"card": "a", "n": 3},
    ]
    assert {(row.operator, row.table) for row in found} == {("counts", "keys")}


def test_a_key_of_several_columns_is_found_by_all_of_them() -> None:
    found = kept_rows(PAIRS, parse_key(["card=a", "shop=2"]), limit=10)

    assert [row.row for row in found] == [{"card": "a", "shop": 2, "n": 6}]


def test_a_key_is_found_in_a_large_table_which_is_kept_compressed() -> None:
    large = pa.table({"card": [f"card-{n}" for n in range(5000)], "n": range(5000)})
    tables = [("keys", write_kept(large, ONE.metadata))]

    found = kept_rows(tables, parse_key(["card-4711"]), limit=10)

    assert [row.row for row in found] == [{"card": "card-4711", "n": 4711}]


def test_without_a_key_there_are_as_many_rows_as_are_asked_for() -> None:
    assert [row.row["n"] for row in kept_rows(TABLES, {}, limit=3)] == [1, 2, 3]


def test_a_key_that_can_t_be_one_is_refused() -> None:
    with pytest.raises(PipelineError, match="columns card, shop: write COLUMN=VALUE"):
        kept_rows(PAIRS, parse_key(["a"]), limit=10)
    with pytest.raises(PipelineError, match="'user' is no column of a key: there are card"):
        kept_rows(TABLES, parse_key(["user=a"]), limit=10)
    with pytest.raises(PipelineError, match="'a' is no part of a key"):
        parse_key(["card=a", "a"])


def test_a_table_that_can_t_be_read_is_named_with_what_to_do() -> None:
    with pytest.raises(
        PipelineError, match=r"the state of the pipeline \(keys\) can't be read: .* newer version"
    ):
        kept_rows([("keys", b"/damaged")], {}, limit=10)
