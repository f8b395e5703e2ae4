"""The shop, as a newcomer runs it: one command, and changes that are seen in every store."""

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
    shutil.rmtree(elsewhere(tmp_path / ".headrace" / "demo" / "shop"), ignore_errors=True)


def test_the_demo_shows_changes_in_all_stores_and_leaves_no_process_behind(directory: Path) -> None:
    ports = [word for part in ("", "broker-", "postgres-", "redis-") for word in (f"--{part}port", "0")]
    theirs = {"HEADRACE_DATA", "HEADRACE_BOOTSTRAP", "HEADRACE_POSTGRES"}
    done = subprocess.run(
        [sys.executable, "-m", "headrace", "demo", "shop", "--seconds", "30", *ports],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
        timeout=WITHIN_S,
        env={name: value for name, value in os.environ.items() if name not in theirs},
    )

    assert done.returncode == 0, done.stderr
    told = re.search(r"changes were seen to arrive in all stores: (.+)", done.stderr)
    assert told, done.stderr
    for pipeline in ("product_search", "cart_documents", "order_warehouse", "sold_products"):
        assert re.search(rf"{pipeline} [1-9]", told[1]), told[1]
    assert "/stores?token=" in done.stderr
    running = [" ".join(each.info["cmdline"] or []) for each in psutil.process_iter(["cmdline"])]
    assert [command for command in running if str(directory) in command] == []
