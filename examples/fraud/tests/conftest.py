"""A Spark session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from headrace.config import StreamsConfig
from headrace.streams.session import start_session, stop_session

SLOTS = 32
"""As many as other tests ask for: if they have started a session already, it is this one."""


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One session for all tests."""
    directory = tmp_path_factory.mktemp("spark")
    session = start_session(StreamsConfig(data_dir=directory), slots=SLOTS, work_dir=directory)
    yield session
    stop_session(session)
