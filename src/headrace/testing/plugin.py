"""The pytest plugin. It is loaded into every test run where Headrace is installed, so it imports nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from headrace.broker import Broker
    from headrace.postgres import EmbeddedPostgres
    from headrace.redis import EmbeddedRedis
    from headrace.testing.pipelines import ScriptOf
    from headrace.testing.postgres import TestDatabase
    from headrace.testing.redis import TestRedis


@pytest.fixture
def headrace_broker() -> Iterator[Broker]:
    """A fresh Kafka broker, gone after the test; `headrace_broker.bootstrap` is its address."""
    from headrace.broker import Broker  # noqa: PLC0415  # loaded only by tests that use it

    with Broker() as broker:
        yield broker


@pytest.fixture
def headrace_queues() -> Iterator[str]:
    """Fresh work queues, gone after the test: the URL for a client of AMQP 0-9-1."""
    from headrace.broker import Broker  # noqa: PLC0415  # loaded only by tests that use it

    with Broker(amqp=True) as broker:
        yield broker.amqp_url


@pytest.fixture(scope="session")
def headrace_postgres_server() -> Iterator[EmbeddedPostgres]:
    """A PostgreSQL server that all tests share, with logical replication, started when it is first used."""
    from headrace.testing.postgres import postgres_server  # noqa: PLC0415  # needs psycopg

    with postgres_server() as server:
        yield server


@pytest.fixture
def headrace_postgres(headrace_postgres_server: EmbeddedPostgres) -> Iterator[TestDatabase]:
    """An empty PostgreSQL database, dropped after the test; `headrace_postgres.dsn` is how to reach it."""
    from headrace.testing.postgres import fresh_database  # noqa: PLC0415  # needs psycopg

    with fresh_database(headrace_postgres_server) as database:
        yield database


@pytest.fixture(scope="session")
def headrace_redis_server() -> Iterator[EmbeddedRedis]:
    """A Redis server that all tests share, started when it is first used."""
    from headrace.testing.redis import redis_server  # noqa: PLC0415  # needs redis

    with redis_server() as server:
        yield server


@pytest.fixture
def headrace_redis(headrace_redis_server: EmbeddedRedis) -> Iterator[TestRedis]:
    """An empty Redis, emptied after the test; `headrace_redis.url` is how to reach it."""
    from headrace.testing.redis import fresh_redis  # noqa: PLC0415  # needs redis

    with fresh_redis(headrace_redis_server) as cache:
        yield cache


@pytest.fixture(scope="session")
def headrace_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A Spark session that all tests share, started when it is first used."""
    from headrace.testing.pipelines import spark_session  # noqa: PLC0415  # needs Spark

    with spark_session(tmp_path_factory.mktemp("headrace-spark")) as session:
        yield session


@pytest.fixture
def headrace_pipeline(headrace_spark: SparkSession, headrace_broker: Broker, tmp_path: Path) -> ScriptOf:
    """Run a pipeline step by step: `headrace_pipeline(large)`; see `headrace.testing.pipelines`."""
    from functools import partial  # noqa: PLC0415  # as above

    from headrace.testing.pipelines import PipelineScript  # noqa: PLC0415  # as above

    return partial(
        PipelineScript,
        session=headrace_spark,
        bootstrap=headrace_broker.bootstrap,
        directory=tmp_path / "headrace",
    )
