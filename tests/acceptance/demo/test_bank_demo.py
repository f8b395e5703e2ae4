"""The bank, as a newcomer runs it: one command, events on a page, and balances on Spark that follow."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from headrace.postgres.home import elsewhere

pytestmark = [pytest.mark.spark, pytest.mark.demo, pytest.mark.long, pytest.mark.timeout(3600)]

WITHIN_S = 1200.0
"""How long anything may take that takes two minutes at most when the machine has nothing else to do."""


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """An empty one; what root keeps of the database elsewhere is removed afterwards."""
    yield tmp_path
    shutil.rmtree(elsewhere(tmp_path / ".headrace" / "demo" / "bank"), ignore_errors=True)


def test_the_demo_shows_balances_that_follow_the_events_and_leaves_no_process_behind(
    directory: Path,
) -> None:
    ports = [word for part in ("", "broker-", "postgres-") for word in (f"--{part}port", "0")]
    theirs = {"HEADRACE_DATA", "HEADRACE_BOOTSTRAP", "HEADRACE_POSTGRES"}
    done = subprocess.run(
        [sys.executable, "-m", "headrace", "demo", "bank", "--seconds", "60", *ports],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
        timeout=WITHIN_S,
        env={name: value for name, value in os.environ.items() if name not in theirs},
    )

    assert done.returncode == 0, done.stderr
    told = re.search(r"(\d+) results were seen", done.stderr)
    assert told, done.stderr
    assert int(told[1]) > 0
    assert "/event-store?token=" in done.stderr
    running = [" ".join(each.info["cmdline"] or []) for each in psutil.process_iter(["cmdline"])]
    assert [command for command in running if str(directory) in command] == []
