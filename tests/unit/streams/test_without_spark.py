"""Where the Spark extra is not installed."""

from __future__ import annotations

import subprocess
import sys

PRELUDE = """
import sys
from importlib.abc import MetaPathFinder

class Absent(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"pyspark", "py4j"}:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Absent())
import importlib.util
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name == "pyspark" else real(name, package)
"""


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PRELUDE + program], capture_output=True, text=True, check=False, timeout=60
    )


def test_java_and_jars_can_be_looked_for() -> None:
    done = run("import headrace.streams.java, headrace.streams.jars, headrace.streams.admin")

    assert done.returncode == 0, done.stderr


def test_a_pipeline_says_what_to_install() -> None:
    done = run("import headrace.streams as hr; hr.topic('transactions')")

    assert "SetupError: pipelines need Spark: pip install 'headrace[spark]'" in done.stderr
