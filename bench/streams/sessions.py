"""The sessions of Spark that benchmarks run in: ours, and one that is as Spark comes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyspark.sql import SparkSession

from headrace.config import StreamsConfig
from headrace.streams.session import find_jars, session_options, start_session, stop_session

_OURS_ONLY: Final = (
    "spark.sql.streaming.",
    "spark.shuffle.streaming.",
    "spark.driver.extraClassPath",
    "spark.hadoop.fs.file.impl",
)


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
    """As Spark comes, but for what has nothing to do with streams."""
    work_dir = config.data_dir / "work"
    work_dir.mkdir(parents=True)
    options = session_options(config, slots=os.cpu_count() or 1, jars=find_jars(config), work_dir=work_dir)
    builder: SparkSession.Builder = SparkSession.builder
    for key, value in options.items():
        if not key.startswith(_OURS_ONLY):
            builder = builder.config(key, value)
    session = builder.getOrCreate()
    try:
        yield session
    finally:
        session.stop()
