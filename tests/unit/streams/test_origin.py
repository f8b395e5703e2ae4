"""Offsets count for the cluster and the topics that they were taken from, and for no others."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.config import StreamsConfig
from headrace.errors import ConfigError
from headrace.streams.checkpoint import checkpoint_path
from headrace.streams.origin import Origin, difference, keep_origin

HERE = Origin(cluster_id="here", topic_ids={"orders": "o1", "payments": "p1"})


@pytest.mark.parametrize(
    "found",
    [
        HERE,
        Origin(cluster_id="here", topic_ids={"orders": "o1"}),
        Origin(cluster_id="here", topic_ids={**HERE.topic_ids, "customers": "c1"}),
        Origin(cluster_id=None, topic_ids={}),
    ],
    ids=["the same", "a topic less", "a topic more", "a cluster that says nothing of itself"],
)
def test_offsets_hold_where_nothing_speaks_against_it(found: Origin) -> None:
    assert difference(HERE, found) is None


def test_offsets_of_another_cluster_do_not_hold() -> None:
    there = Origin(cluster_id="there", topic_ids=HERE.topic_ids)

    assert difference(HERE, there) == "the cluster here, and this is there"


def test_offsets_of_a_topic_that_was_created_anew_do_not_hold() -> None:
    anew = Origin(cluster_id="here", topic_ids={"orders": "o1", "payments": "p2"})

    assert difference(HERE, anew) == "a topic payments that was deleted since, and created anew"


def test_a_query_is_answerable_for_its_own_topics_only() -> None:
    assert HERE.of({"orders"}) == Origin(cluster_id="here", topic_ids={"orders": "o1"})


@pytest.fixture
def config(tmp_path: Path) -> StreamsConfig:
    config = StreamsConfig(data_dir=tmp_path)
    checkpoint_path(config, "alerts").mkdir(parents=True)
    return config


def test_a_checkpoint_of_another_cluster_is_refused_each_time(config: StreamsConfig) -> None:
    keep_origin(config, "alerts", HERE)
    keep_origin(config, "alerts", HERE)

    for _ in range(2):
        with pytest.raises(
            ConfigError, match=r"^alerts can't go on .* another --data, or remove .*/checkpoints/alerts to"
        ):
            keep_origin(config, "alerts", Origin(cluster_id="there", topic_ids={}))


def test_a_checkpoint_that_was_removed_starts_afresh(config: StreamsConfig) -> None:
    there = Origin(cluster_id="there", topic_ids={})
    keep_origin(config, "alerts", HERE)
    checkpoint_path(config, "alerts").rmdir()

    keep_origin(config, "alerts", there)
    checkpoint_path(config, "alerts").mkdir()

    keep_origin(config, "alerts", there)
    with pytest.raises(ConfigError, match="the cluster there, and this is here"):
        keep_origin(config, "alerts", HERE)


def test_a_checkpoint_whose_origin_was_never_noted_is_taken_as_it_is(config: StreamsConfig) -> None:
    keep_origin(config, "alerts", HERE)

    assert {path.name for path in config.checkpoints_dir.iterdir()} == {"alerts", "alerts.json"}


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"cluster_id": "here", "topic_ids": 1}'])
def test_a_note_that_can_not_be_read_is_named(config: StreamsConfig, content: str) -> None:
    path = config.checkpoints_dir / "alerts.json"
    path.write_text(content)

    with pytest.raises(ConfigError, match=f"^{path} does not say where its checkpoint comes from"):
        keep_origin(config, "alerts", HERE)
