"""From where queries read that start together for the first time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

import headrace.streams as hr
from headrace.config import StreamsConfig
from headrace.errors import ConfigError
from headrace.streams.checkpoint import checkpoint_path
from headrace.streams.starts import Starts, settle_starts, starting_offsets
from headrace.streams.topic import Topic

early = hr.topic("early", schema="id string")
late = hr.topic("late", schema="id string", start="latest")
both = hr.topic(["late", "later"], schema="id string", start=datetime(2026, 1, 1, tzinfo=UTC))


class Cluster:
    """Answers with offsets that grow from question to question, as those of a topic in use do."""

    def __init__(self) -> None:
        self.questions: list[list[str]] = []

    def ask(self, topics: Sequence[Topic]) -> Starts:
        self.questions.append([topic.name for topic in topics])
        return {topic.name: {0: len(self.questions), 1: 7} for topic in topics}


@pytest.fixture
def config(tmp_path: Path) -> StreamsConfig:
    return StreamsConfig(data_dir=tmp_path)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def test_queries_that_start_together_start_at_the_same_offsets(
    config: StreamsConfig, cluster: Cluster
) -> None:
    settled = settle_starts(config, {"letters": [late], "one": [early, late], "two": [late]}, cluster.ask)

    assert settled == {query: {"late": {0: 1, 1: 7}} for query in ("letters", "one", "two")}
    assert cluster.questions == [["late"]]


def test_what_was_settled_holds_for_as_long_as_the_checkpoint_is_there(
    config: StreamsConfig, cluster: Cluster
) -> None:
    first = settle_starts(config, {"one": [late]}, cluster.ask)

    assert settle_starts(config, {"one": [late]}, cluster.ask) == first
    (checkpoint_path(config, "one") / "starts.json").unlink()
    checkpoint_path(config, "one").rmdir()
    assert settle_starts(config, {"one": [late]}, cluster.ask) == {"one": {"late": {0: 2, 1: 7}}}


def test_a_crash_between_two_notes_can_not_make_dead_letters_begin_later_than_rows(
    config: StreamsConfig, cluster: Cluster
) -> None:
    settle_starts(config, {"letters": [late], "rows": [late]}, cluster.ask)
    (checkpoint_path(config, "rows") / "starts.json").unlink()

    settled = settle_starts(config, {"letters": [late], "rows": [late]}, cluster.ask)

    assert settled["letters"]["late"][0] < settled["rows"]["late"][0]


def test_the_beginning_is_neither_asked_for_nor_noted_down(config: StreamsConfig, cluster: Cluster) -> None:
    assert settle_starts(config, {"one": [early]}, cluster.ask) == {"one": {}}
    assert cluster.questions == []
    assert not checkpoint_path(config, "one").exists()


def test_each_of_several_topics_is_asked_for(config: StreamsConfig, cluster: Cluster) -> None:
    settled = settle_starts(config, {"one": [both]}, cluster.ask)

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
        settle_starts(config, {"one": [late]}, cluster.ask)
