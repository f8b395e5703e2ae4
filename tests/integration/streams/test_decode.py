"""Which records become rows, and what is said of those that don't."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import SparkSession

import headrace.streams as hr
from headrace.errors import PipelineError
from headrace.streams.decode import decoded, parse_schema, undecodable
from headrace.streams.plan_mode import COMPILED, INTERPRETED, MODE

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True, params=[COMPILED, INTERPRETED])
def _in_both_modes(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[None]:
    spark.conf.set(MODE, request.param)
    yield
    spark.conf.unset(MODE)


SCHEMA = (
    "id string not null, amount double, count int, at timestamp, place struct<city: string>, tags array<int>"
)
TOPIC = hr.topic("things", schema=SCHEMA)

GOOD: Mapping[bytes, dict[str, Any]] = {
    b'{"id":"a","amount":1.5,"count":2,"place":{"city":"Ulm"},"tags":[1,2]}': {
        "id": "a",
        "amount": 1.5,
        "count": 2,
        "place": {"city": "Ulm"},
        "tags": [1, 2],
    },
    b'{"id":"a"}': {"id": "a"},
    b' {"id" : "a"} \n': {"id": "a"},
    b'\t\r\n{"id":"a"}\t\r\n ': {"id": "a"},
    b'{"id":"}","unknown":{"id":"b"}}': {"id": "}"},
    b'{"id":"a","amount":null}': {"id": "a"},
    b'{"id":"a","unknown":[{}]}': {"id": "a"},
    b'{"id":"a","id":"b"}': {"id": "b"},
    b'{"id":5}': {"id": "5"},
    b'{"id":"a","amount":3}': {"id": "a", "amount": 3.0},
    '{"id":"Zürich \U0001f9c0"}'.encode(): {"id": "Zürich \U0001f9c0"},
    b'{"id":"a\\u0000b"}': {"id": "a\0b"},
    b'{"id":"a","at":"2026-01-02T03:04:05.000006Z"}': {"id": "a", "at": "2026-01-02T03:04:05.000006"},
    b'{"id":"a","at":"2026-01-02T03:04:05+02:00"}': {"id": "a", "at": "2026-01-02T01:04:05"},
    b'{"id":"a","at":1767323045}': {"id": "a", "at": "2026-01-02T03:04:05"},
    b'{"id":"a","at":"9999-12-31T23:59:59Z"}': {"id": "a", "at": "9999-12-31T23:59:59"},
}

BAD: Mapping[bytes | None, str] = {
    None: "the value is null (a tombstone)",
    b"": "the value is empty",
    b" \t": "the value is empty",
    b"\xff\xfe": "the value is not UTF-8",
    b'{"id":"\xff"}': "the value is not UTF-8",
    b'{"id":"a"': "the value is not one JSON text",
    b'{"id":"a",}': "the value is not one JSON text",
    b"{'id':'a'}": "the value is not one JSON text",
    b'{"id":"a","amount":NaN}': "the value is not one JSON text",
    b'{"id":"a"} garbage': "the value is not one JSON text",
    b'{"id":"a"}{"id":"b"}': "the value is not one JSON text",
    b'{"id":"a"},{"id":"b"}': "the value is not one JSON text",
    b'{"id":"a"}}': "the value is not one JSON text",
    b'{"id":"a"},"other":{"id":"b"}': "the value is not one JSON text",
    b'{"id":"a"}],"other":[{"id":"b"}': "the value is not one JSON text",
    b'{"id":"a"},"other":{"id":"b"}}': "the value is not one JSON text",
    b'{"id":"a"}{}': "the value is not one JSON text",
    b'{"id":"a"} {"id":"b"}': "the value is not one JSON text",
    b'{"id":"a","other":{"id":"b"}': "the value is not one JSON text",
    b'{"id":"a","other":{}': "the value is not one JSON text",
    b'{"id":"a","other":[}': "the value is not one JSON text",
    b'{"id":"a","count":12': "the value is not one JSON text",
    b'{"id":"a}': "the value is not one JSON text",
    b'{"id":"a\\"}': "the value is not one JSON text",
    b'{"id":"a",}}': "the value is not one JSON text",
    b'{"id":}': "the value is not one JSON text",
    b"{": "the value is not one JSON text",
    b"}": "the value is not one JSON text",
    b'\x0c{"id":"a"}': "the value is not one JSON text",
    b'{"id":"a"}\xc2\xa0': "the value is not one JSON text",
    b'{"id":"a"} /* }*/': "the value is not one JSON text",
    b'{"id":"a"}#}': "the value is not one JSON text",
    b'\xef\xbb\xbf{"id":"a"}': "the value is not one JSON text",
    b"[" * 5_000 + b"]" * 5_000: "the value is not one JSON text",
    b'{"id":' * 5_000 + b"1" + b"}" * 5_000: "the value is not one JSON text",
    b"null": "the value is JSON but not an object",
    b"5": "the value is JSON but not an object",
    b'"text"': "the value is JSON but not an object",
    b'[{"id":"a"}]': "the value is JSON but not an object",
    b"{}": "a required column has no value: id (string)",
    b" { \n} ": "a required column has no value: id (string)",
    b'{"id":null,"count":1}': "a required column has no value: id (string)",
    b'{"ID":"a"}': "a required column has no value: id (string)",
    b'{"id":"a","amount":"12"}': "does not fit its column: amount (double)",
    b'{"id":"a","amount":"NaN"}': "does not fit its column: amount (double)",
    b'{"id":"a","count":1.5,"at":"noon"}': "does not fit its column: count (int), at (timestamp)",
    b'{"id":"a","count":99999999999}': "does not fit its column: count (int)",
    b'{"id":"a","place":"Ulm"}': "does not fit its column: place (struct<city:string>)",
    b'{"id":"a","tags":[1,"x"]}': "does not fit its column: tags (array<int>)",
    b'{"id":"a","place":{"city":"Ulm"},"place":1}': "a value does not fit its column",
    b'{"id":"a","amount":1e400}': "too large a number: amount (double)",
}

RECORD = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "headers array<struct<key: string, value: binary>>"
)
Outcomes = dict[bytes | None, dict[str, Any] | str]


@pytest.fixture(scope="module")
def outcomes(spark: SparkSession) -> Outcomes:
    """What each of the values above became, all in one go: a row, or a cause."""
    values = [*GOOD, *BAD]
    records = spark.createDataFrame(
        [
            (b"key", value, "things", 3, offset, datetime(2026, 1, 1, tzinfo=UTC), [])
            for offset, value in enumerate(values)
        ],
        RECORD,
    )
    schema = parse_schema(TOPIC)
    rows = decoded(records, schema).selectExpr(
        "_kafka.offset AS offset",
        "_kafka AS metadata",
        # Python's own local time must not come into it.
        "struct(id, amount, count, cast(at AS timestamp_ntz) AS at, place, tags) AS row",
    )
    found: Outcomes = {}
    for row in rows.collect():
        assert row.metadata.partition == 3
        found[values[row.offset]] = _plain(row.row.asDict(recursive=True))
    for row in undecodable(records, schema).collect():
        assert values[row.offset] not in found, "both decoded and undecodable"
        assert (None if row.value is None else bytes(row.value)) == values[row.offset]
        found[values[row.offset]] = row.cause
    return found


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    given = {name: value for name, value in row.items() if value is not None}
    return {name: value.isoformat() if name == "at" else value for name, value in given.items()}


@pytest.mark.parametrize("value", GOOD, ids=repr)
def test_a_json_object_that_fits_becomes_a_row(outcomes: Outcomes, value: bytes) -> None:
    assert outcomes[value] == GOOD[value]


@pytest.mark.parametrize("value", BAD, ids=lambda value: repr(value)[:40])
def test_a_record_that_does_not_fit_becomes_a_dead_letter_with_its_cause(
    outcomes: Outcomes, value: bytes | None
) -> None:
    assert outcomes[value] == BAD[value]


def test_of_a_flat_row_all_that_is_read_must_be_utf_8(spark: SparkSession) -> None:
    schema = parse_schema(hr.topic("things", schema="id string, n int"))
    good = {
        b'{"id":"a","n":1}': "a",
        '{"id":"\N{REPLACEMENT CHARACTER} ü","n":1}'.encode(): "\N{REPLACEMENT CHARACTER} ü",
        b'{"id":"a","n":1,"unread":"\xff"}': "a",
        b'{"n":1}': None,
    }
    bad = [
        b'{"id":"%s","n":1}' % part
        for part in (b"\xff", b"a\xc3", b"\xc3b", b"\x80", b"\xc0\x80", b"\xed\xa0\x80", b"\xf0\x9f\xa7")
    ] + [b'{"n":\xff}']
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    records = spark.createDataFrame(
        [(b"key", value, "things", 3, 0, moment, []) for value in (*good, *bad)], RECORD
    )

    rows = [row.id for row in decoded(records, schema).collect()]
    letters = {bytes(row.value): row.cause for row in undecodable(records, schema).collect()}

    assert rows == list(good.values())
    assert letters == dict.fromkeys(bad, "the value is not UTF-8")


@pytest.mark.parametrize("schema", [SCHEMA, "id string, n int"], ids=["nested", "flat"])
def test_a_text_is_parsed_once(spark: SparkSession, schema: str) -> None:
    kind = parse_schema(hr.topic("things", schema=schema))
    # Of rows that Spark can't know before it runs.
    records = spark.range(1).selectExpr(
        "cast(cast(id AS string) AS binary) AS value",
        "cast(null AS binary) AS key",
        "'things' AS topic",
        "0 AS partition",
        "id AS offset",
        "timestamp_millis(id) AS timestamp",
        "cast(null AS array<struct<key: string, value: binary>>) AS headers",
    )

    for frame in (decoded(records, kind), decoded(records, kind).select("id"), undecodable(records, kind)):
        plan: str = frame._jdf.queryExecution().optimizedPlan().toString()
        assert plan.count("from_json(") == 1


def test_an_object_with_none_of_the_columns_is_no_row_of_nulls(spark: SparkSession) -> None:
    optional = parse_schema(hr.topic("things", schema="a int, b string"))
    records = spark.createDataFrame([(bytearray(b'{"other": 1}'),)], "value binary")

    (row,) = undecodable(records, optional).collect()

    assert row.cause == "none of the schema's columns has a value: a, b"


@dataclass
class Line:
    sku: str
    count: int | None


@dataclass
class Order:
    id: str
    place: Line | None
    lines: list[Line] | None


def test_what_a_dataclass_requires_is_required_wherever_it_stands(spark: SparkSession) -> None:
    topic = hr.topic("orders", schema=Order)
    good: list[Mapping[str, Any]] = [
        {"id": "a"},
        {"id": "b", "place": {"sku": "x"}, "lines": [{"sku": "y", "count": 1}]},
        {"id": "c", "lines": []},
    ]
    causes: Mapping[str, Mapping[str, Any]] = {
        "id (string)": {"lines": []},
        "place.sku (string)": {"id": "d", "place": {"count": 1}},
        "lines[].sku (string)": {"id": "e", "lines": [{"sku": "y"}, {"count": 1}]},
    }

    assert [row.id for row in hr.static(spark, topic, [*good, *causes.values()]).collect()] == ["a", "b", "c"]
    records = spark.createDataFrame(
        [(bytearray(json.dumps(row).encode()),) for row in (*good, *causes.values())], "value binary"
    )
    assert [row.cause for row in undecodable(records, parse_schema(topic)).collect()] == [
        f"a required column has no value: {path}" for path in causes
    ]


def test_rows_of_a_test_are_read_as_live_ones_are(spark: SparkSession) -> None:
    rows = hr.static(
        spark, TOPIC, [{"id": "a", "at": datetime(2026, 1, 2, tzinfo=UTC)}, {"amount": 1}, {"id": "c"}]
    )

    found = rows.selectExpr("id", "cast(at AS string) AS at", "_kafka.offset AS offset").collect()

    assert [(row.id, row.at, row.offset) for row in found] == [
        ("a", "2026-01-02 00:00:00", 0),
        ("c", None, 2),
    ]


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("topic", "complaint"),
    [
        (hr.topic("t"), r't can\'t be read without a schema.*hr\.topic\("t", schema='),
        (hr.topic("t", schema="id strin"), "schema of topic t can't be read"),
        (hr.topic("t", schema="_kafka string"), "_kafka is reserved"),
        (
            hr.topic("t", schema="id string", event_time="at"),
            r"'at', which is none of the schema's columns \(id\)",
        ),
        (hr.topic("t", schema="at string", event_time="at"), "event_time at is string; use a timestamp"),
    ],
    ids=["none", "unknown type", "reserved", "no event time", "event time of another type"],
)
def test_a_schema_that_can_not_be_says_what_is_wrong(topic: hr.Topic, complaint: str) -> None:
    with pytest.raises(PipelineError, match=complaint):
        parse_schema(topic)
