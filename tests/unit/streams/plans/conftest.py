"""Plans in the form that Spark writes them in, made by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from headrace.streams.plans import Description, Operator, describe
from headrace.streams.plans.tree import read_plan

Flat = list[dict[str, Any]]


class Maker:
    """Makes flattened trees. Attributes have numbers, which a session hands out; `first` is the first."""

    def __init__(self, first: int = 0) -> None:
        self._next = first

    def number(self) -> int:
        self._next += 1
        return self._next

    def node(self, kind: str, *children: Flat, **fields: Any) -> Flat:
        head = {"class": f"org.apache.spark.sql.{kind}", "num-children": len(children), **fields}
        return [head, *(node for child in children for node in child)]

    def attribute(self, name: str, kind: Any = "double", number: int | None = None) -> Flat:
        own = {"id": self.number() if number is None else number, "jvmId": str(self._next)}
        return self.node("AttributeReference", name=name, dataType=kind, exprId=own)

    def alias(self, expression: Flat, name: str) -> Flat:
        return self.node("Alias", expression, child=0, name=name, exprId={"id": self.number()})

    def same(self, named: Flat) -> Flat:
        """A reference to what an attribute or an alias names."""
        return self.attribute(named[0]["name"], named[0].get("dataType", "double"), named[0]["exprId"]["id"])

    def literal(self, value: object, kind: str = "integer") -> Flat:
        return self.node("Literal", value=str(value), dataType=kind)

    def aggregate_of(self, function: str, *arguments: Flat, distinct: bool = False) -> Flat:
        inner = self.node(function, *arguments, child=0)
        return self.node("AggregateExpression", inner, isDistinct=distinct, resultId={"id": self.number()})

    def source(self, *columns: Flat) -> Flat:
        return self.node("StreamingRelationV2", output=list(columns))

    def project(self, child: Flat, *columns: Flat) -> Flat:
        return self.node("Project", child, projectList=list(columns), child=0)

    def aggregate(self, child: Flat, keys: list[Flat], results: list[Flat]) -> Flat:
        fields = {"groupingExpressions": keys, "aggregateExpressions": results}
        return self.node("Aggregate", child, child=0, **fields)


@pytest.fixture
def maker() -> Maker:
    return Maker()


@pytest.fixture
def another_session() -> Maker:
    return Maker(first=1000)


def columns_of(*columns: Flat) -> dict[int, str]:
    return {
        column[0]["exprId"]["id"]: f"orders.{column[0]['name']}: {column[0]['dataType']}"
        for column in columns
    }


@pytest.fixture
def description() -> Any:
    """Describe a plan over the columns of one topic."""

    def make(
        plan: Flat,
        *columns: Flat,
        sources: tuple[str, ...] = ("orders",),
        shuffle_partition_count: int = 2,
        output_mode: str = "update",
        watermarks: Mapping[str, str] | None = None,
        own: Mapping[str, Operator] | None = None,
    ) -> Description:
        tree = read_plan(json.dumps(plan))
        return describe(
            tree,
            tree,
            columns=columns_of(*columns),
            sources=sources,
            shuffle_partition_count=shuffle_partition_count,
            output_mode=output_mode,
            watermarks=watermarks or {},
            own=own or {},
        )

    return make
