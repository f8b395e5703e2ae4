"""Spark's errors as sentences."""

from __future__ import annotations

import pytest

from headrace.streams.sql.sentences import is_in_parts, name_of, near, sentence, streaming_sentence


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            "\n[PARSE_SYNTAX_ERROR] Syntax error at or near 'x'. SQLSTATE: 42601 (line 1, pos 15)\n\n== SQL",
            "line 1, column 16: Syntax error at or near 'x'",
        ),
        (
            "[UNRESOLVED_COLUMN] `idd` cannot be resolved. SQLSTATE: 42703; line 2 pos 7;\n'Project ['idd]",
            "line 2, column 8: `idd` cannot be resolved",
        ),
        (
            "\n[INVALID_IDENTIFIER] The unquoted identifier a-b is invalid.\nThey can ... (line 1, pos 18)\n",
            "line 1, column 19: The unquoted identifier a-b is invalid",
        ),
        ("something else", "something else"),
    ],
)
def test_an_error_is_one_sentence_with_its_place(error: str, told: str) -> None:
    assert sentence(error) == told


def test_what_a_stream_can_not_do_is_told_with_what_can() -> None:
    told = streaming_sentence("Sorting is not supported on streaming DataFrames/Datasets, unless ...;\n~Sort")
    assert told.endswith("; leave ORDER BY out, and order what you query; hr.top keeps the first ones")


def test_a_name_in_parts_is_one_with_dots() -> None:
    assert name_of("`shop`.`public`.`or``ders`") == "shop.public.or`ders"
    assert is_in_parts("`a`.`b`")
    assert not is_in_parts("`a.b`")


def test_names_that_are_like_a_wrong_one_are_found() -> None:
    assert near("ordrs", ["Orders", "payments", "orders-eu"])[0] == "Orders"
    assert near("zzz", ["orders"]) == []
