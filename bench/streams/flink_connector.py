"""What Flink needs to read and write topics."""

from __future__ import annotations

from pathlib import Path

from headrace.config import default_cache_dir, default_jars_dir
from headrace.streams.jars import Jar, resolve_jars


def connector() -> Path:
    """Flink's connector to Kafka, fetched where it is missing."""
    sha256, coordinate = Path(__file__).with_name("flink_jars.txt").read_text().split()
    group, artifact, version = coordinate.split(":")
    jar = Jar(group=group, artifact=artifact, version=version, sha256=sha256)
    return resolve_jars(default_cache_dir(), default_jars_dir(), jars=(jar,))[0]
