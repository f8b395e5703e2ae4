"""An archive of Spark's classes, as `headrace setup` has Java make it, and a session that starts from it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.config import StreamsConfig

pytestmark = [pytest.mark.spark, pytest.mark.long]

WITHIN_S = 600.0
START = """
import sys
from pathlib import Path
from headrace.config import StreamsConfig
from headrace.streams.session import start_session, stop_session

data, class_path, *java_options = sys.argv[1:]
options = {"spark.driver.extraJavaOptions": " ".join(java_options)}
if class_path:
    options["spark.driver.extraClassPath"] = class_path
config = StreamsConfig(data_dir=Path(data), spark_options=options)
stop_session(start_session(config, slots=1, work_dir=Path(data)))
"""
ELSE_FAIL = "-Xshare:on"
"""Java ends where it can't use the archive, instead of doing without it."""


def run(
    cache: Path, *arguments: str | Path, java_options: str | None = None
) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "HEADRACE_CACHE": str(cache)}
    if java_options is not None:
        variables["JDK_JAVA_OPTIONS"] = java_options
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        env=variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=WITHIN_S,
    )


def test_spark_starts_from_the_archive_that_setup_makes(tmp_path: Path) -> None:
    cache, data, log = tmp_path / "cache", tmp_path / "data", tmp_path / "classes.log"
    left = cache / "classes" / ".make-killed"
    left.mkdir(parents=True)
    data.mkdir()
    (cache / "jars").symlink_to(StreamsConfig().cache_dir / "jars")

    # As a user has it made: what tests have Java do to be done sooner must not be in the way.
    made = run(cache, "-m", "headrace", "setup", "--no-install", "--fast-start", java_options="")
    assert made.returncode == 0, made.stderr
    (archive,) = (path for path in (cache / "classes").iterdir() if path.name != ".lock")

    started = run(cache, "-c", START, data, "", ELSE_FAIL, f"-Xlog:class+load:file={log}")
    assert started.returncode == 0, started.stderr
    loaded = [line for line in log.read_text().splitlines() if " org.apache.spark." in line]
    archived = [line for line in loaded if "source: shared objects file (top)" in line]
    assert len(archived) > len(loaded) / 2, f"{len(archived)} of {len(loaded)} from {archive}"

    other_class_path = run(cache, "-c", START, data, tmp_path, ELSE_FAIL)
    assert "Spark could not start" in other_class_path.stderr

    again = run(cache, "-m", "headrace", "setup", "--no-install", java_options="")
    assert again.returncode == 0, again.stderr
    assert "archiving" not in again.stdout + again.stderr
