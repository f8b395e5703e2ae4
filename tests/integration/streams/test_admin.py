"""Topics are there before a query starts, and are those that its checkpoint speaks of."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

import headrace
import headrace.streams as hr
from headrace.config import StreamsConfig
from headrace.errors import BrokerUnavailable, ConfigError, FaultError, SetupError
from headrace.streams.admin import ensure_topics
from headrace.streams.checkpoint import checkpoint_path
from headrace.streams.run import run

orders = hr.topic("orders", schema="id string")


def test_topics_are_created_with_so_many_partitions(kafka: Any) -> None:
    assert ensure_topics(kafka.bootstrap, {"one": 1, "three": 3}) == {"one": 1, "three": 3}


def test_a_topic_that_exists_keeps_what_it_has(kafka: Any) -> None:
    ensure_topics(kafka.bootstrap, {"orders": 3})

    assert ensure_topics(kafka.bootstrap, {"orders": 1, "other": 1}) == {"orders": 3, "other": 1}


def test_a_topic_that_the_broker_refuses_is_named(kafka: Any) -> None:
    with pytest.raises(FaultError, match=r"topic no spaces could not be created at 127\.0\.0\.1"):
        ensure_topics(kafka.bootstrap, {"no spaces": 1})


@hr.pipeline(writes=hr.topic("copies"))
def copies(orders: Any) -> Any: ...


def had_run(config: StreamsConfig) -> None:
    """Leave what a run on these settings leaves, which ends here because there are no jars for Spark."""
    with pytest.raises(SetupError, match="there are no jars"):
        run([copies], config, realtime=False)
    checkpoint_path(config, "copies").mkdir()


@pytest.fixture
def config(kafka: Any, tmp_path: Path) -> StreamsConfig:
    return StreamsConfig(
        bootstrap=kafka.bootstrap, data_dir=tmp_path, jars_dir=tmp_path / "there are no jars"
    )


def test_a_checkpoint_of_another_cluster_is_refused_before_spark_starts(config: StreamsConfig) -> None:
    had_run(config)

    with headrace.Broker() as other, pytest.raises(ConfigError, match=r"copies can't .* of the cluster"):
        run([copies], replace(config, bootstrap=other.bootstrap), realtime=False)


def test_a_checkpoint_of_a_topic_that_was_created_anew_is_refused_before_spark_starts(
    config: StreamsConfig,
) -> None:
    had_run(config)
    client = AdminClient({"bootstrap.servers": config.bootstrap, "log_level": 0})
    client.delete_topics(["orders"])["orders"].result()

    with pytest.raises(ConfigError, match=r"copies can't .* of a topic orders that was deleted"):
        run([copies], config, realtime=False)


def test_a_checkpoint_of_the_same_topics_goes_on(config: StreamsConfig) -> None:
    had_run(config)

    with pytest.raises(SetupError, match="there are no jars"):
        run([copies], config, realtime=False)


def test_without_a_broker_a_run_ends_before_spark_starts(tmp_path: Any) -> None:
    config = StreamsConfig(
        bootstrap="127.0.0.1:1", data_dir=tmp_path, jars_dir=tmp_path / "there are no jars"
    )

    with pytest.raises(BrokerUnavailable, match=r"no broker answers at 127\.0\.0\.1:1: start one with"):
        run([copies], config, realtime=False)
