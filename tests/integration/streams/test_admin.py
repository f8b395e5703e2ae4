"""Topics are there before a query starts, and are those that its checkpoint speaks of."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

import headrace
import headrace.streams as hr
from headrace.config import StreamsConfig
from headrace.errors import BrokerUnavailable, ConfigError, FaultError, SetupError
from headrace.streams.admin import ask_starts, ensure_topics
from headrace.streams.checkpoint import checkpoint_path
from headrace.streams.run import run

orders = hr.topic("orders", schema="id string")


def test_topics_are_created_with_so_many_partitions(config: StreamsConfig) -> None:
    assert ensure_topics(config, {"one": 1, "three": 3}) == {"one": 1, "three": 3}


def test_a_topic_that_exists_keeps_what_it_has(config: StreamsConfig) -> None:
    ensure_topics(config, {"orders": 3})

    assert ensure_topics(config, {"orders": 1, "other": 1}) == {"orders": 3, "other": 1}


def test_a_topic_that_the_broker_refuses_is_named(config: StreamsConfig) -> None:
    with pytest.raises(FaultError, match=r"topic no spaces could not be created at 127\.0\.0\.1"):
        ensure_topics(config, {"no spaces": 1})


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


def test_a_start_becomes_the_offset_that_it_means_now(config: StreamsConfig) -> None:
    ensure_topics(config, {"orders": 2})
    producer = Producer({"bootstrap.servers": config.bootstrap})
    for second in range(4):
        producer.produce("orders", f"{second}", partition=0, timestamp=1_767_225_600_000 + second * 1000)
    producer.flush()

    def asked(start: Any) -> dict[int, int]:
        return ask_starts(config, [hr.topic("orders", start=start)])["orders"]

    assert asked("earliest") == {0: -2, 1: -2}
    assert asked("latest") == {0: 4, 1: 0}
    assert asked({0: 3}) == {0: 3, 1: -2}
    assert asked(datetime(2026, 1, 1, 0, 0, 2, tzinfo=UTC)) == {0: 2, 1: 0}
    assert asked(datetime(2026, 1, 1, 1, 0, 0, tzinfo=timezone(timedelta(hours=1)))) == {0: 0, 1: 0}
    assert asked(datetime(2027, 1, 1, tzinfo=UTC)) == {0: 4, 1: 0}
    with pytest.raises(ConfigError, match="partition 0 of orders has offsets 0 to 4, not 5"):
        asked({0: 5})
    with pytest.raises(ConfigError, match="orders has partitions 0 to 1, not 2"):
        asked({2: 0})


def test_a_refused_login_is_told_from_a_missing_broker(tmp_path: Path) -> None:
    login = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "ann",
        "sasl.password": "wrong",
    }
    with headrace.Broker(users={"ann": "right"}) as broker:
        config = StreamsConfig(bootstrap=broker.bootstrap, data_dir=tmp_path, client_options=login)
        with pytest.raises(ConfigError, match=r"refused the login: .*headrace --client-config FILE"):
            ensure_topics(config, {})


def test_settings_that_no_client_knows_are_refused(config: StreamsConfig) -> None:
    with pytest.raises(ConfigError, match=r"the client settings are wrong: .*no\.such\.thing"):
        ensure_topics(replace(config, client_options={"no.such.thing": "1"}), {})
