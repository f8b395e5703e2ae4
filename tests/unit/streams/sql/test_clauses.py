"""The clauses of a query."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.streams.sql.clauses import (
    Clauses,
    Item,
    WindowCall,
    mentions,
    mentions_whole,
    parse_clauses,
    window_call,
)

EXPRESSIONS = st.sampled_from(
    [
        "a",
        "`b c`",
        "t.a",
        "count(*)",
        "sum(a, b)",
        "case when a then 'x, from' end",
        "a[1]",
        "(select 1 from u)",
    ]
)


def clauses(sql: str) -> Clauses:
    found = parse_clauses(sql)
    assert found is not None
    return found


@given(st.lists(EXPRESSIONS, min_size=1), EXPRESSIONS, st.lists(EXPRESSIONS, max_size=3))
def test_a_query_is_taken_apart_at_its_own_clauses_only(
    items: list[str], where: str, groups: list[str]
) -> None:
    named = [f"{item} as c{number}" for number, item in enumerate(items)]
    grouped = ["GROUP BY", ", ".join(groups)] if groups else []
    sql = " ".join(["SELECT", ", ".join(named), "FROM t WHERE", where, *grouped])
    found = clauses(sql)
    assert [item.text for item in found.items] == items
    assert [item.name for item in found.items] == [f"c{number}" for number in range(len(items))]
    assert (found.source, found.where, found.tail) == ("t", where, None)
    assert [item.text for item in found.groups] == groups


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("a", "a"),
        ("t.a", "a"),
        ("t.`a b`", "a b"),
        ("a x", "x"),
        ("count(*) n", "n"),
        ("count(*)", "count(*)"),
        ("a between b and c", "a between b and c"),
        ("a between b and c d", "d"),
        ("not a", "not a"),
        ("at + interval 1 day", "at + interval 1 day"),
        ("at + interval '1' day d", "d"),
        ("1 day", "day"),
        ("case when a then b end", "case when a then b end"),
        ("window(at, '1 minute')", "window"),
    ],
)
def test_an_item_has_the_name_that_spark_gives_it(text: str, name: str) -> None:
    selected = f"select {text}"
    assert clauses(f"{selected} from t").items[0].name == name


@pytest.mark.parametrize(
    ("sql", "tail"),
    [
        ("select distinct a from t", "DISTINCT"),
        ("select a from t group by a having count(*) > 1", "HAVING"),
        ("select a from t order by a", "ORDER"),
        ("select a from t limit 3", "LIMIT"),
        ("select window.start from t group by window(at, '1 day')", None),
        ("select extract(day from at) d from t", None),
    ],
)
def test_what_a_view_can_not_have_is_found(sql: str, tail: str | None) -> None:
    assert clauses(sql).tail == tail


@pytest.mark.parametrize(
    "sql", ["with x as (select 1) select * from x", "select 1 from a union all select 2 from b", "values (1)"]
)
def test_a_query_of_another_form_has_no_clauses(sql: str) -> None:
    assert parse_clauses(sql) is None


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("window(at, '1 minute')", WindowCall(function="window", column="at", lengths=("1 minute",))),
        (
            "Window(`at`,'2 days' , '1 day')",
            WindowCall(function="window", column="at", lengths=("2 days", "1 day")),
        ),
        (
            "session_window(at, '5 minutes')",
            WindowCall(function="session_window", column="at", lengths=("5 minutes",)),
        ),
        ("window", None),
        ("window(at)", None),
        ("window(at, x)", None),
    ],
)
def test_a_window_of_time_is_recognised(text: str, call: WindowCall | None) -> None:
    assert window_call(Item(text=text, normal=text)) == call


def test_a_name_in_a_string_or_comment_is_not_mentioned() -> None:
    assert not mentions("select '_kafka' -- _kafka", "_kafka")
    assert mentions("select `_Kafka`.offset", "_kafka")
    assert not mentions_whole("select *, _kafka.offset", "_kafka")
    assert mentions_whole("select *, t._kafka", "_kafka")
