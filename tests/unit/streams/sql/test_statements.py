"""The statements of `headrace sql`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import SqlError
from headrace.streams.sql.statements import (
    CreateTable,
    CreateView,
    Describe,
    Drop,
    Query,
    Show,
    Statement,
    is_complete,
    parse_statements,
)


@pytest.mark.parametrize(
    ("text", "statement"),
    [
        ("select 1", Query(sql="select 1")),
        (" with x as (select 1) select * from x ; ", Query(sql="with x as (select 1) select * from x")),
        ("LIVE select ';' -- no; end", Query(sql="select ';'", is_live=True)),
        ("show tables", Show(kind="tables")),
        ("SHOW VIEWS;", Show(kind="views")),
        ("describe `card-minutes`", Describe(name="card-minutes")),
        ("desc table shop.public.orders", Describe(name="shop.public.orders")),
        ("drop view if exists v", Drop(kind="view", name="v", if_exists=True)),
        ("drop table t", Drop(kind="table", name="t")),
        (
            (
                "create table if not exists t (id string not null, m map<string, decimal(10,2)>) "
                "with (topic = 'a.b', Watermark = '30 seconds')"
            ),
            CreateTable(
                name="t",
                columns="id string not null, m map<string, decimal(10,2)>",
                options={"topic": "a.b", "watermark": "30 seconds"},
                if_not_exists=True,
            ),
        ),
        (
            "create materialized view v with (key = 'id', partitions = 3) as\nselect id\nfrom t",
            CreateView(name="v", query="select id\nfrom t", options={"key": "id", "partitions": "3"}),
        ),
    ],
)
def test_a_statement_is_read(text: str, statement: Statement) -> None:
    assert parse_statements(text) == [statement]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("insert into t values (1)", "line 1, column 1: 'insert' begins no statement"),
        ("select 1;\nDELETE from t", "line 2, column 1: 'DELETE' begins no statement"),
        ("with x as (select 1) insert into t select * from x", "column 22: queries change nothing"),
        ("from t insert overwrite u select *", "column 8: queries change nothing"),
        ("with x as (select 1) delete from t", "column 22: queries change nothing"),
        ("with x as (select 1), update (a) as (select 2) update t set a = 1", "column 48: queries change"),
        ("with x as (select 1) merge into t using x on true", "column 22: queries change nothing"),
        ("from t insert with schema evolution into u select *", "column 8: queries change nothing"),
        ("select transform(id) using 'cat' from t", "column 22: queries run no other programs"),
        ("create view v as from t map id using 'cat'", "queries run no other programs"),
        ("select `Reflect`('java.lang.System', 'exit', 1)", "column 8: queries call no methods of Java"),
        ("select system.builtin.java_method('a', 'b')", "queries call no methods of Java"),
        ("select identifier('reflect')('a', 'b')", "write the name itself instead of IDENTIFIER"),
        ("create or replace view v as select 1", "column 8: write CREATE TABLE or CREATE VIEW; DROP"),
        ("create view v select 1", "column 15: there is 'select' instead of AS; write CREATE VIEW name AS"),
        ("create view v as", "column 17: here a SELECT is missing"),
        ("create view v as drop table t", "column 18: a query begins with SELECT or WITH"),
        ("create table t (id string", "column 16: this parenthesis has no end"),
        ("create table t with (topic 'x')", "column 28: there is \"'x'\" instead of ="),
        ("create table t with (key = 'a', key = 'b')", "the option key is given twice"),
        ("show functions", "there is 'functions' instead of TABLES"),
        ("describe t u", "column 12: the statement should end before 'u'"),
        ("drop view", "there is nothing instead of the name of a view"),
    ],
)
def test_what_is_no_statement_is_refused_with_its_place(text: str, told: str) -> None:
    with pytest.raises(SqlError) as refusal:
        parse_statements(text)
    assert told in str(refusal.value)


@pytest.mark.parametrize(
    "text",
    [
        "select delete from t",
        "with update as (select 1) select count(*) update from update",
        "with x (delete) as (select 1) select * from x",
        "select transform(a, x -> x + 1) from t join u using (id)",
        "select reflect from t",
        "select 'reflect(1)'",
    ],
)
def test_words_that_are_names_are_not_refused(text: str) -> None:
    assert parse_statements(text) == [Query(sql=text)]


@given(st.lists(st.sampled_from(["select 1", "show views", "select ';'", "select `;`", "/* ; */ select 2"])))
def test_semicolons_part_statements_outside_of_quotes_and_comments(parts: list[str]) -> None:
    assert len(parse_statements(" ; ".join(parts))) == len(parts)


@pytest.mark.parametrize(
    ("text", "whether"),
    [
        ("select 1", False),
        ("select 1;", True),
        ("select ';", False),
        ("select 1; -- ;", True),
        ("-- ;", False),
    ],
)
def test_a_shell_waits_for_the_semicolon(text: str, whether: bool) -> None:
    assert is_complete(text) is whether
