"""How a topic is described."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

import headrace.streams as hr
from headrace.errors import ConfigError


def test_a_topic_is_described_by_a_frozen_value() -> None:
    topic = hr.topic(
        "transactions", schema="at timestamp", key="card_id", event_time="at", watermark="1 minute"
    )

    assert topic == hr.topic(
        "transactions", schema="at timestamp", key="card_id", event_time="at", watermark="1 minute"
    )
    with pytest.raises(AttributeError):
        topic.name = "other"  # type: ignore[misc] # that it can't be done is the test


def test_a_key_is_one_column_or_several() -> None:
    assert [hr.topic("t", key=key).key for key in (None, "id", ["id", "line"])] == [
        (),
        ("id",),
        ("id", "line"),
    ]


def test_dead_letters_have_a_topic_named_after_theirs() -> None:
    assert hr.topic("transactions").dead_letters == "transactions.dead-letters"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"name": "no spaces"}, "not a topic name"),
        ({"name": "t", "watermark": "1 minute"}, "watermark but no event_time"),
        ({"name": "t", "event_time": "at"}, "event_time but no schema"),
        ({"name": "t", "start": "yesterday"}, "use earliest, latest, a datetime"),
        ({"name": "t", "start": datetime(2026, 1, 1)}, "has no time zone"),  # noqa: DTZ001 - as it should
        ({"name": "t", "start": {}}, "partition: offset"),
        ({"name": "t", "start": {0: -1}}, "none of them negative"),
        ({"name": ["t", "u"], "start": {0: 1}}, "describe the topics one by one"),
        ({"name": ["t", "t"]}, "name each topic once"),
        ({"name": []}, "names no topic"),
        ({"name": "t", "format": "avro"}, "use json, text, bytes"),
        ({"name": "t", "format": "text", "schema": "id string"}, "the one column 'value'"),
        ({"name": "t", "max_records_per_batch": 0}, "max_records_per_batch is 0; use at least 1"),
        ({"name": "t", "partitions": 0}, "use at least 1"),
        ({"name": "t", "key": ["id", "id"]}, "a column twice in its key: id, id"),
        ({"name": "t", "format": "upsert", "schema": "id int", "key": []}, "give it the key"),
    ],
)
def test_a_description_that_can_not_be_says_what_is_wrong(arguments: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        hr.topic(**arguments)


def test_the_query_for_dead_letters_is_named_after_the_topic_and_its_schema() -> None:
    assert hr.topic("orders", schema="id string").dead_letters_query == "orders.dead-letters-4488618d"
    assert hr.topic("orders", schema="id int").dead_letters_query != "orders.dead-letters-4488618d"


def test_the_query_for_dead_letters_has_a_name_that_a_file_can_have() -> None:
    names = {hr.topic("a" * 235 + end, schema="id int").dead_letters_query for end in "bc"}

    assert len(names) == 2
    assert all(len(f"{name}.lock") <= 255 for name in names)


def test_several_topics_are_one_description_and_each_has_dead_letters_of_its_own() -> None:
    both = hr.topic(["north", "south"], schema="id int", start="latest")

    assert both.names == ("north", "south")
    assert both.each() == (
        hr.topic("north", schema="id int", start="latest"),
        hr.topic("south", schema="id int", start="latest"),
    )


def test_only_a_topic_of_bytes_has_no_dead_letters() -> None:
    assert not hr.topic("raw", format="bytes").has_dead_letters
    assert hr.topic("raw", format="text").has_dead_letters
