"""What is kept of a plan: the same for the same pipeline in every session."""

from __future__ import annotations

import json
from typing import Any

from headrace.streams.buckets.plan_column import operator_column
from headrace.streams.plans import Description
from headrace.streams.plans.description import Operator, Part
from headrace.streams.plans.lineage import trace
from headrace.streams.plans.tree import read_plan


def totals(make: Any, *, factor: int | None = None, function: str = "Sum") -> tuple[Any, list[Any]]:
    """SELECT id, sum(amount) GROUP BY id, perhaps over amount * factor."""
    card, amount = make.attribute("id", "string"), make.attribute("amount")
    rows, value = make.source(card, amount), make.same(amount)
    if factor is not None:
        changed = make.alias(make.node("Multiply", make.same(amount), make.literal(factor)), "amount")
        rows, value = make.project(rows, make.same(card), changed), make.same(changed)
    total = make.alias(make.aggregate_of(function, value), "total")
    return make.aggregate(rows, [make.same(card)], [make.same(card), total]), [card, amount]


def test_an_aggregate_is_described_by_its_keys_and_what_it_keeps(maker: Any, description: Any) -> None:
    plan, columns = totals(maker)

    (operator,) = description(plan, *columns).operators

    assert str(operator) == "aggregate by id"
    assert [(part.text, part.typed, part.definition) for part in operator.state] == [
        ("sum(amount)", "sum(amount: double)", "sum(orders.amount: double)")
    ]


def test_the_numbers_of_a_session_are_not_part_of_it(
    maker: Any, another_session: Any, description: Any
) -> None:
    plan, columns = totals(maker, factor=2)
    again, again_columns = totals(another_session, factor=2)

    assert description(plan, *columns) == description(again, *again_columns)


def test_a_definition_goes_through_projections_down_to_the_topic(maker: Any, description: Any) -> None:
    plan, columns = totals(maker, factor=100)

    (operator,) = description(plan, *columns).operators

    assert operator.state[0].definition == "sum((orders.amount: double * 100))"
    assert operator.state[0].typed == "sum(amount: double)"


def test_an_aggregate_that_is_used_twice_is_kept_once(maker: Any, description: Any) -> None:
    card, amount = maker.attribute("id", "string"), maker.attribute("amount")
    sums = [maker.alias(maker.aggregate_of("Sum", maker.same(amount)), name) for name in ("a", "b")]
    plan = maker.aggregate(maker.source(card, amount), [maker.same(card)], sums)

    (operator,) = description(plan, card, amount).operators

    assert len(operator.state) == 1


def test_a_table_that_is_no_stream_keeps_no_state(maker: Any, description: Any) -> None:
    card = maker.attribute("id", "string")
    table = maker.node("LocalRelation", output=[card])
    static = maker.aggregate(table, [maker.same(card)], [maker.same(card)])
    stream = maker.source(maker.attribute("id", "string"))
    joined = maker.node("Join", stream, static, left=0, right=1, joinType={"object": "x.Inner$"})

    assert description(joined).operators == ()


def test_a_join_of_streams_is_described_by_the_columns_that_it_keeps(maker: Any, description: Any) -> None:
    left, right = maker.attribute("id", "string"), maker.attribute("id", "string")
    name = maker.attribute("name", "string")
    condition = maker.node("EqualTo", maker.same(left), maker.same(right), left=0, right=1)
    plan = maker.node(
        "Join",
        maker.source(left),
        maker.source(right, name),
        joinType={"object": "org.apache.spark.sql.catalyst.plans.LeftOuter$"},
        condition=condition,
    )

    (operator,) = description(plan, left, right, name).operators

    assert operator.kind == "leftouter join of two streams"
    assert operator.keys[0].text == "(id = id)"
    assert [part.text for part in operator.state] == ["id", "name"]


def test_operators_come_from_the_sources_up(maker: Any, description: Any) -> None:
    card = maker.attribute("id", "string")
    unique = maker.node("Deduplicate", maker.source(card), keys=[maker.same(card)], child=0)
    plan = maker.aggregate(unique, [maker.same(card)], [maker.same(card)])

    kinds = [operator.kind for operator in description(plan, card).operators]

    assert kinds == ["dropDuplicates", "aggregate"]


def test_operators_of_our_own_are_known_by_name_not_by_the_order_of_calls(
    maker: Any, description: Any
) -> None:
    card = maker.attribute("card", "string")

    def stepped(name: str, child: Any) -> Any:
        made = maker.attribute(operator_column(name) if name else "blob", "binary")
        return maker.node("TransformWithStateInPySpark", child, child=0, outputAttrs=[made])

    plan = stepped("window", stepped("", stepped("ä.2", maker.source(card))))
    own = {name: Operator(kind=name, keys=(), state=()) for name in ("window", "ä.2", "unused")}

    operators = description(plan, card, own=own).operators

    assert [each.kind for each in operators] == ["ä.2", "transformWithState", "window"]


def test_variables_of_lambdas_count_from_their_first_use(maker: Any, description: Any) -> None:
    def plan(variable: str) -> Description:
        card = maker.attribute("id", "string")
        body = maker.node("NamedLambdaVariable", name=variable, dataType="string", exprId={"id": 7})
        key = maker.node("ArrayTransform", maker.same(card), maker.node("LambdaFunction", body))
        made: Description = description(maker.aggregate(maker.source(card), [key], []), card)
        return made

    assert plan("x_1") == plan("x_27")


def test_a_long_definition_is_kept_as_a_digest(maker: Any, description: Any) -> None:
    card = maker.attribute("id", "string")
    key = maker.same(card)
    for _ in range(60):
        key = maker.node("Lower", key, child=0)
    named = maker.alias(key, "key")
    plan = maker.aggregate(maker.project(maker.source(card), named), [maker.same(named)], [])

    (operator,) = description(plan, card).operators

    assert operator.keys[0].text == "key"
    assert operator.keys[0].definition.startswith("sha256:")


def test_what_an_older_version_kept_has_no_settings(maker: Any, description: Any) -> None:
    kept = description(maker.source(maker.attribute("card"))).to_json()
    kept["operators"] = [{"kind": "deduplication", "keys": [], "state": []}]
    assert Description.from_json(kept).operators[0].settings == {}


def test_a_description_can_be_kept_as_json(maker: Any, description: Any) -> None:
    plan, columns = totals(maker)
    made = description(plan, *columns, watermarks={"orders.at": "1 minute"})

    assert Description.from_json(json.loads(json.dumps(made.to_json()))) == made


def test_a_value_that_is_another_each_time_is_traced_to_all_that_is_made_of_it(maker: Any) -> None:
    card = maker.attribute("id", "string")
    seen = maker.alias(maker.node("CurrentTimestamp"), "seen")
    rows = maker.project(maker.source(card), maker.same(card), seen)
    later = maker.alias(maker.node("Add", maker.same(seen), maker.literal(1)), "later")
    plan = read_plan(json.dumps(maker.project(rows, maker.same(card), later)))

    lineage = trace(plan, {card[0]["exprId"]["id"]: "orders.id: string"})

    found = [lineage.causes(column) for column in plan.expressions("projectList")]
    assert found == [frozenset(), frozenset({"current_timestamp"})]
    assert lineage.uncertain_rows == set()


def test_a_filter_by_chance_makes_the_rows_uncertain(maker: Any) -> None:
    card = maker.attribute("id", "string")
    condition = maker.node("LessThan", maker.node("Rand", maker.literal(7)), maker.literal(1))
    plan = read_plan(json.dumps(maker.node("Filter", maker.source(card), condition=condition)))

    assert trace(plan, {}).uncertain_rows == {"rand"}


def test_rows_in_the_order_of_a_window_are_certain_and_of_a_group_are_not(maker: Any) -> None:
    amount = maker.attribute("amount")
    collected = maker.aggregate_of("CollectList", maker.same(amount))
    window = maker.alias(maker.node("WindowExpression", collected), "frame")
    over = read_plan(json.dumps(maker.project(maker.source(amount), window)))
    group = read_plan(json.dumps(maker.aggregate(maker.source(amount), [], [maker.alias(collected, "all")])))

    assert trace(over, {}).uncertain == {}
    (causes,) = trace(group, {}).uncertain.values()
    assert causes == {"collect_list, which depends on the order of rows,"}


def test_columns_beside_the_keys_of_dropped_duplicates_are_uncertain(maker: Any) -> None:
    card, amount = maker.attribute("id", "string"), maker.attribute("amount")
    plan = maker.node("Deduplicate", maker.source(card, amount), keys=[maker.same(card)])

    uncertain = trace(read_plan(json.dumps(plan)), {}).uncertain

    assert list(uncertain) == [amount[0]["exprId"]["id"]]


def test_only_operators_whose_key_is_made_of_the_event_time_leave_late_rows_out() -> None:
    def drops(kind: str, *keys: str, watermark: bool = True) -> bool:
        parts = tuple(Part(text=key, typed=key, definition=key) for key in keys)
        return Description(
            sources=("orders",),
            operators=(Operator(kind=kind, keys=parts, state=()),),
            shuffle_partition_count=2,
            output_mode="update",
            watermarks={"orders.at": "1 minute"} if watermark else {},
        ).drops_late_rows

    assert drops("aggregate", "orders.id: string", "date_trunc(minute, orders.at: timestamp)")
    assert drops("aggregate", "sha256:0123")
    assert not drops("aggregate", "orders.id: string")
    assert not drops("aggregate", "orders.at: timestamp", watermark=False)
    assert drops("dropDuplicatesWithinWatermark", "orders.id: string")
    assert not drops("dropDuplicates", "orders.id: string")
