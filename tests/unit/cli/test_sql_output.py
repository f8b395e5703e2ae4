"""What `headrace sql` prints."""

from __future__ import annotations

import pytest

from headrace.cli.sql_output import Lines, LiveTable, SqlFormat, cell, print_table

ROWS = ['{"id":"a","n":1.50,"s":{"x":[1]}}', '{"id":null,"n":2,"s":null}', '{"id":"c, d","n":3,"s":null}']


@pytest.mark.parametrize(
    ("form", "printed"),
    [
        ("json", "".join(f"{row}\n" for row in ROWS)),
        ("csv", 'id,n,s\na,1.50,"{""x"": [1]}"\n,2,\n"c, d",3,\n'),
    ],
)
def test_rows_are_lines(form: SqlFormat, printed: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = Lines(format=form, columns=["id", "n", "s"])
    lines.write(ROWS)
    lines.end()
    assert capsys.readouterr().out == printed


def test_what_a_limit_cuts_off_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    lines = Lines(format="json", columns=["id"], limit=2)
    lines.write(ROWS)
    assert (lines.count, lines.is_cut) == (2, True)
    lines.end()
    assert "there are more rows; --limit 2 has cut them off" in capsys.readouterr().err


def test_a_limit_that_is_reached_by_the_last_row_cuts_nothing_off() -> None:
    lines = Lines(format="json", columns=["id"], limit=3)
    lines.write(ROWS[:2])
    assert not lines.is_full
    lines.write(ROWS[2:])
    assert (lines.is_full, lines.is_cut) == (True, False)


def test_a_csv_without_rows_has_its_header(capsys: pytest.CaptureFixture[str]) -> None:
    lines = Lines(format="csv", columns=["id", "n"])
    lines.write([])
    lines.end()
    assert capsys.readouterr().out == "id,n\n"


def test_a_table_says_when_there_are_more_rows(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["id", "n"], ROWS, 2)
    told = capsys.readouterr()
    assert "2 rows" in told.out
    assert "there are more rows; the first 2 are shown" in told.err


def test_a_live_table_keeps_the_last_rows_and_counts_all() -> None:
    table = LiveTable(columns=["id"], limit=2)
    table.take(['{"id":1}', '{"id":2}', '{"id":3}'])
    assert [row["id"] for row in table.rows] == [2, 3]
    assert table.caption == "3 rows, the last 2 are shown; Ctrl-C ends"


def test_a_live_table_of_all_groups_is_replaced_by_each_batch() -> None:
    table = LiveTable(columns=["id"], is_whole=True, limit=2)
    table.take(['{"id":1}', '{"id":2}', '{"id":3}'])
    assert table.caption == "3 rows, the first 2 are shown; Ctrl-C ends"
    table.take(['{"id":4}'])
    assert [row["id"] for row in table.rows] == [4]
    assert table.caption == "1 row; Ctrl-C ends"


def test_a_live_table_by_key_replaces_rows_and_drops_those_that_are_gone() -> None:
    table = LiveTable(columns=["id", "n", "_delete"], key=("id",))
    table.take(['{"id":1,"n":1}', '{"id":2,"n":1}', '{"id":1,"n":2}'])
    assert [(row["id"], row["n"]) for row in table.rows] == [(2, 1), (1, 2)]
    table.take(['{"id":2,"n":null,"_delete":true}'])
    assert [row["id"] for row in table.rows] == [1]


def test_a_live_table_by_key_says_when_it_has_forgotten_rows() -> None:
    table = LiveTable(columns=["id"], key=("id",), keys_max=2)
    table.take(['{"id":1}', '{"id":2}', '{"id":3}'])
    assert [row["id"] for row in table.rows] == [2, 3]
    assert table.caption == "more than 2 rows; Ctrl-C ends"


@pytest.mark.parametrize(
    ("value", "text"), [(None, ""), (True, "true"), ("x", "x"), (5, "5"), ({"a": ["ö"]}, '{"a": ["ö"]}')]
)
def test_a_cell_is_text(value: object, text: str) -> None:
    assert cell(value) == text
