"""A dataclass as the schema of a topic."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any, Optional

import pytest

import headrace.streams as hr
from headrace.errors import ConfigError
from headrace.streams.schema import schema_ddl


@dataclass
class Line:
    sku: str
    count: Annotated[int, "int"]


@dataclass
class Order:
    id: str
    number: int
    price: float
    paid: bool
    raw: bytes
    at: datetime
    day: date
    total: Decimal
    exact: Annotated[Decimal, "decimal(10,2)"]
    first: Line
    lines: list[Line]
    labels: dict[str, str]
    note: str | None
    old: Optional[int] = None  # noqa: UP045 - the older notation is understood as well
    noted: Annotated[int, 7] | None = None


def test_each_field_is_a_column_that_is_required_unless_it_may_be_none() -> None:
    assert schema_ddl(Order).split(", `") == [
        "`id` string not null",
        "number` bigint not null",
        "price` double not null",
        "paid` boolean not null",
        "raw` binary not null",
        "at` timestamp not null",
        "day` date not null",
        "total` decimal(38,18) not null",
        "exact` decimal(10,2) not null",
        "first` struct<`sku`: string not null",
        "count`: int not null> not null",
        "lines` array<struct<`sku`: string not null",
        "count`: int not null>> not null",
        "labels` map<string, string> not null",
        "note` string",
        "old` bigint",
        "noted` bigint",
    ]


def test_a_topic_takes_a_dataclass_for_its_schema() -> None:
    assert hr.topic("lines", schema=Line).schema == "`sku` string not null, `count` int not null"


def test_ddl_stays_as_it_is() -> None:
    assert schema_ddl("id string, at timestamp") == "id string, at timestamp"


@dataclass
class Defaulted:
    count: int = 0


@dataclass
class Made:
    tags: list[str] = field(default_factory=list)


@dataclass
class Strange:
    value: set[str]


@dataclass
class Either:
    value: int | str


@dataclass
class Endless:
    inner: Endless | None


@dataclass
class Empty:
    pass


@pytest.mark.parametrize(
    ("schema", "complaint"),
    [
        (Defaulted, r"Defaulted\.count has a default"),
        (Made, r"Made\.tags has a default"),
        (Strange, r"Strange\.value is set\[str\], which is no column: use str"),
        (Either, r"Either\.value is int \| str, which is no column"),
        (Endless, "Endless holds itself"),
        (Empty, "Empty has no fields"),
        (int, "write Spark's DDL"),
        (Line("a", 1), "write Spark's DDL"),
    ],
)
def test_what_can_not_be_a_schema_says_so(schema: Any, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        schema_ddl(schema)


def test_every_field_of_a_made_up_class_is_found_again() -> None:
    columns = {f"column_{number}": kind for number, kind in enumerate([str, int, float, bool] * 5)}
    made = dataclasses.make_dataclass("MadeUp", list(columns.items()))

    assert [part.split("`")[1] for part in schema_ddl(made).split(", ")] == list(columns)
