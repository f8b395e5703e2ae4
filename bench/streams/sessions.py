"""The processes and sessions of Spark that benchmarks run in: ours, and one that is as Spark comes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from typing import Final, TypeVar

from pyspark.sql import SparkSession

from headrace.config import StreamsConfig
from headrace.streams.session import find_jars, session_options, start_session, stop_session

T = TypeVar("T")

_OURS_ONLY: Final = (
    "spark.sql.streaming.",
    "spark.shuffle.streaming.",
    "spark.python.",
    "spark.driver.extraClassPath",
    "spark.hadoop.fs.file.impl",
)
_OURS_OF_JAVA: Final = ("-XX:Tier", "-XX:+Use")


def apart(work: partial[T]) -> T:
    """Call it in a process of its own, which ends with it."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(work).result()


@contextmanager
def our_session(config: StreamsConfig) -> Iterator[SparkSession]:
    """As `headrace run` starts it."""
    work_dir = config.data_dir / "work"
    work_dir.mkdir(parents=True)
    session = start_session(config, slots=os.cpu_count() or 1, work_dir=work_dir)
    try:
        yield session
    finally:
        stop_session(session)


@contextmanager
def plain_session(config: StreamsConfig) -> Iterator[SparkSession]:
    """As Spark comes, but for what has nothing to do with streams, and for partitions: as few as ours has."""
    work_dir = config.data_dir / "work"
    work_dir.mkdir(parents=True)
    options = session_options(config, slots=os.cpu_count() or 1, jars=find_jars(config), work_dir=work_dir)
    words = options["spark.driver.extraJavaOptions"].split(" ")
    options["spark.driver.extraJavaOptions"] = " ".join(
        word for word in words if not word.startswith(_OURS_OF_JAVA)
    )
    builder: SparkSession.Builder = SparkSession.builder
    for key, value in options.items():
        if not key.startswith(_OURS_ONLY):
            builder = builder.config(key, value)
    session = builder.getOrCreate()
    try:
        yield session
    finally:
        session.stop()


def use_state_of_keys(session: SparkSession) -> None:
    """Have a plain session keep state where transformWithState can: it runs on this state store only."""
    session.conf.set(
        "spark.sql.streaming.stateStore.providerClass",
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    )
