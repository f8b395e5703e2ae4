"""Topics described page by page."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from headrace.kafka.handlers.topic_partitions import PARTITION_COUNT_MAX, handle_describe_topic_partitions
from headrace.kafka.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)


def call_with(partition_counts: dict[str, int]) -> Any:
    topics = {
        name: SimpleNamespace(name=name, topic_id=UUID(int=1), partitions=(None,) * count)
        for name, count in partition_counts.items()
    }
    return SimpleNamespace(services=SimpleNamespace(store=SimpleNamespace(topics=topics), topic=topics.get))


def ask(call: Any, names: list[str], limit: int, cursor: Cursor | None = None) -> Any:
    return handle_describe_topic_partitions(
        call,
        DescribeTopicPartitionsRequest(
            topics=tuple(TopicRequest(name=name) for name in names),
            response_partition_limit=limit,
            cursor=cursor,
        ),
    )


NAMES = st.text("abc", min_size=1, max_size=3)


@given(
    counts=st.dictionaries(NAMES, st.integers(1, 5), max_size=6),
    asked=st.lists(NAMES, max_size=6),
    limit=st.integers(0, 6),
)
def test_all_pages_together_have_each_partition_once_in_order(
    counts: dict[str, int], asked: list[str], limit: int
) -> None:
    call = call_with(counts)
    cursor: Cursor | None = None
    found: list[tuple[str, int]] = []
    unknown: list[str] = []
    while True:
        page = ask(call, asked, limit, cursor)
        partitions = [
            (topic.name, each.partition_index) for topic in page.topics for each in topic.partitions
        ]
        unknown += [
            topic.name for topic in page.topics if topic.error_code is ErrorCode.unknown_topic_or_partition
        ]
        assert len(partitions) <= max(limit, 1)
        found += partitions
        cursor = page.next_cursor
        if cursor is None:
            break
    wanted = sorted(set(asked) or counts)
    assert found == [(name, number) for name in wanted for number in range(counts.get(name, 0))]
    assert unknown == [name for name in wanted if name not in counts]


def test_a_page_has_a_maximum_whatever_the_client_asks_for() -> None:
    page = ask(call_with({"t": 5_000}), [], 100_000)
    assert len(page.topics[0].partitions) == PARTITION_COUNT_MAX
    assert page.next_cursor == Cursor(topic_name="t", partition_index=PARTITION_COUNT_MAX)


def test_a_cursor_past_the_end_of_a_topic_goes_on_with_the_next() -> None:
    page = ask(call_with({"a": 2, "b": 1}), [], 10, Cursor(topic_name="a", partition_index=7))
    assert [(topic.name, len(topic.partitions)) for topic in page.topics] == [("a", 0), ("b", 1)]


def test_a_cursor_that_makes_no_sense_is_refused() -> None:
    call = call_with({"a": 2})
    for cursor in (
        Cursor(topic_name="b", partition_index=0),
        Cursor(topic_name="a", partition_index=-1),
    ):
        (topic,) = ask(call, ["a"], 10, cursor).topics
        assert topic.error_code is ErrorCode.invalid_request
