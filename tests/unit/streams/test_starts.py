"""From where queries read that start together for the first time."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

import headrace.streams as hr
from headrace.config import StreamsConfig
from headrace.errors import ConfigError
from headrace.streams.checkpoint import checkpoint_path
from headrace.streams.progress_log import read_progress_log
from headrace.streams.starts import Starts, lowest, positions, settle_starts, starting_offsets
from headrace.streams.topic import Topic

early = hr.topic("early", schema="id string")
late = hr.topic("late", schema="id string", start="latest")
both = hr.topic(["late", "later"], schema="id string", start=datetime(2026, 1, 1, tzinfo=UTC))


class Cluster:
    """Answers with offsets that grow from question to question, as those of a topic in use do."""

    def __init__(self) -> None:
        self.questions: list[list[str]] = []
        self.partition_count = 2

    def ask(self, topics: Sequence[Topic]) -> Starts:
        self.questions.append([topic.name for topic in topics])
        return {topic.name: {0: len(self.questions), 1: 7} for topic in topics}

    def count(self, topics: Collection[str]) -> dict[str, int]:
        return dict.fromkeys(topics, self.partition_count)


@pytest.fixture
def config(tmp_path: Path) -> StreamsConfig:
    return StreamsConfig(data_dir=tmp_path)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def processed(
    config: StreamsConfig,
    query: str,
    *ends: Mapping[str, Mapping[int, int]],
    starts: Mapping[str, Mapping[int, int]],
    commits: int,
) -> None:
    """A checkpoint of a query with one source, as Spark leaves it: batches that end there, some committed."""
    checkpoint = checkpoint_path(config, query)
    for directory in ("sources/0", "offsets", "commits"):
        (checkpoint / directory).mkdir(parents=True)
    (checkpoint / "sources" / "0" / "0").write_text("\0v1\n" + json.dumps(starts))
    for number, end in enumerate(ends):
        (checkpoint / "offsets" / str(number)).write_text('v1\n{"batchWatermarkMs":0}\n' + json.dumps(end))
    for number in range(commits):
        (checkpoint / "commits" / str(number)).write_text("v1\n{}")


def test_queries_that_start_together_start_at_the_same_offsets(
    config: StreamsConfig, cluster: Cluster
) -> None:
    settled = settle_starts(
        config, {"letters": [late], "one": [early, late], "two": [late]}, cluster.ask, cluster.count
    )

    assert settled == {query: {"late": {0: 1, 1: 7}} for query in ("letters", "one", "two")}
    assert cluster.questions == [["late"]]


def test_what_was_settled_holds_for_as_long_as_the_checkpoint_is_there(
    config: StreamsConfig, cluster: Cluster
) -> None:
    first = settle_starts(config, {"one": [late]}, cluster.ask, cluster.count)

    assert settle_starts(config, {"one": [late]}, cluster.ask, cluster.count) == first
    (checkpoint_path(config, "one") / "starts.json").unlink()
    checkpoint_path(config, "one").rmdir()
    assert settle_starts(config, {"one": [late]}, cluster.ask, cluster.count) == {
        "one": {"late": {0: 2, 1: 7}}
    }


def test_a_crash_between_two_notes_can_not_make_dead_letters_begin_later_than_rows(
    config: StreamsConfig, cluster: Cluster
) -> None:
    settle_starts(config, {"letters": [late], "rows": [late]}, cluster.ask, cluster.count)
    (checkpoint_path(config, "rows") / "starts.json").unlink()

    settled = settle_starts(config, {"letters": [late], "rows": [late]}, cluster.ask, cluster.count)

    assert settled["letters"]["late"][0] < settled["rows"]["late"][0]


def test_the_beginning_is_neither_asked_for_nor_noted_down(config: StreamsConfig, cluster: Cluster) -> None:
    assert settle_starts(config, {"one": [early]}, cluster.ask, cluster.count) == {"one": {}}
    assert cluster.questions == []
    assert not checkpoint_path(config, "one").exists()


@pytest.mark.parametrize("topic", [early, late, replace(late, start={0: 3})])
def test_dead_letters_by_another_schema_are_taken_from_where_the_pipelines_go_on(
    config: StreamsConfig, cluster: Cluster, topic: Topic
) -> None:
    name = topic.name
    processed(config, "one", {name: {0: 40, 1: 90}}, {name: {0: 99, 1: 99}}, starts={name: {0: 3}}, commits=1)
    processed(config, "two", {name: {0: 50, 1: 60}}, starts={name: {0: 4, 1: 7}}, commits=1)
    processed(config, "other", {name: {0: 1, 1: 1}}, starts={name: {0: 0, 1: 0}}, commits=1)
    cluster.partition_count = 3
    queries = {
        topic.dead_letters_query: [topic],
        "one": [topic],
        "two": [early, topic],
        "other": [replace(topic, schema="id bigint")],
    }

    settled = settle_starts(config, queries, cluster.ask, cluster.count)

    assert settled[topic.dead_letters_query] == {name: {0: 40, 1: 60, 2: -2}}
    assert cluster.questions == []
    starts = json.loads(starting_offsets(topic, settled[topic.dead_letters_query]))
    assert starts == {name: {"0": 40, "1": 60, "2": -2}}
    processed(config, "newer", {name: {0: 0}}, starts={name: {0: 0}}, commits=1)
    again = settle_starts(config, {**queries, "newer": [topic]}, cluster.ask, cluster.count)
    assert again[topic.dead_letters_query] == settled[topic.dead_letters_query], "it is settled once"


def test_a_pipeline_that_joins_others_with_another_schema_takes_the_dead_letters_back_to_its_start(
    config: StreamsConfig, cluster: Cluster
) -> None:
    processed(config, "one", {"late": {0: 40, 1: 5}}, starts={"late": {0: 3, 1: 0}}, commits=1)

    settled = settle_starts(
        config, {late.dead_letters_query: [late], "one": [late], "two": [late]}, cluster.ask, cluster.count
    )

    assert settled["two"] == {"late": {0: 1, 1: 7}}
    assert settled[late.dead_letters_query] == {"late": {0: 1, 1: 5}}


def test_dead_letters_that_were_to_be_taken_from_the_beginning_still_are_after_a_crash_before_the_first_batch(
    config: StreamsConfig, cluster: Cluster
) -> None:
    queries = {early.dead_letters_query: [early], "one": [early]}
    settle_starts(config, queries, cluster.ask, cluster.count)
    processed(config, "one", {"early": {0: 40}}, starts={"early": {0: 0}}, commits=1)

    settled = settle_starts(config, queries, cluster.ask, cluster.count)

    assert starting_offsets(early, settled[early.dead_letters_query]) == "earliest"


def test_partitions_that_were_added_before_the_first_batch_are_read_from_their_first_record(
    config: StreamsConfig, cluster: Cluster
) -> None:
    settle_starts(config, {"one": [late]}, cluster.ask, cluster.count)
    cluster.partition_count = 4

    settled = settle_starts(config, {"one": [late]}, cluster.ask, cluster.count)

    assert settled == {"one": {"late": {0: 1, 1: 7, 2: -2, 3: -2}}}
    assert len(cluster.questions) == 1


def test_a_query_goes_on_behind_its_last_finished_batch_else_where_it_began(config: StreamsConfig) -> None:
    processed(config, "begun", {"t": {0: 9}}, starts={"t": {0: 2, 1: 3}}, commits=0)
    processed(config, "done", {"t": {0: 9}}, {"t": {0: 11}}, starts={"t": {0: 2, 1: 3}}, commits=1)

    found = {
        query: positions(read_progress_log(checkpoint_path(config, query))) for query in ("begun", "done")
    }

    assert found == {"begun": {"t": {0: 2, 1: 3}}, "done": {"t": {0: 9, 1: 3}}}


def test_the_lowest_offset_of_a_partition_that_not_all_know_is_its_first() -> None:
    assert lowest([{0: 5, 1: 9}, {0: 7}]) == {0: 5, 1: -2}


def test_each_of_several_topics_is_asked_for(config: StreamsConfig, cluster: Cluster) -> None:
    settled = settle_starts(config, {"one": [both]}, cluster.ask, cluster.count)

    assert cluster.questions == [["late", "later"]]
    assert json.loads(starting_offsets(both, settled["one"])) == {
        "late": {"0": 1, "1": 7},
        "later": {"0": 1, "1": 7},
    }


def test_the_beginning_is_what_spark_calls_it() -> None:
    assert starting_offsets(early, {}) == "earliest"


@pytest.mark.parametrize("content", ["", "[]", '{"late": 1}', '{"late": {"x": 1}}', '{"late": {"0": null}}'])
def test_a_note_that_can_not_be_read_is_named(config: StreamsConfig, cluster: Cluster, content: str) -> None:
    path = checkpoint_path(config, "one") / "starts.json"
    path.parent.mkdir(parents=True)
    path.write_text(content)

    with pytest.raises(ConfigError, match=r"one/starts\.json does not say where its query started"):
        settle_starts(config, {"one": [late]}, cluster.ask, cluster.count)
