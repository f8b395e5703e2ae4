"""`headrace replay`, `verify` and `check` as they are called."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headrace.config import StreamsConfig

# Each command starts Spark anew.
pytestmark = [pytest.mark.spark, pytest.mark.long]

PIPELINES = """
import headrace.streams as hr
from pyspark.sql import functions as F

orders = hr.topic("orders", schema="id string not null, amount double", partitions=1)

@hr.pipeline(writes=hr.topic("totals", key="id", partitions=1))
def totals(orders):
    return orders.groupBy("id").agg(F.sum("amount").alias("total"))
"""


def test_a_replay_is_verified_and_a_change_that_does_not_fit_is_refused(
    kafka: Any, config: StreamsConfig, tmp_path: Path
) -> None:
    pipelines = tmp_path / "pipelines.py"
    pipelines.write_text(PIPELINES)

    def headrace(command: str, *options: str) -> tuple[int, Any, str]:
        target, data = f"{pipelines}:totals", str(config.data_dir)
        words = [command, target, "--bootstrap", config.bootstrap, "--data", data, "--json", *options]
        done = subprocess.run(
            [sys.executable, "-m", "headrace", *words], capture_output=True, text=True, check=False
        )
        return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr

    kafka.produce("orders", [("a", '{"id": "a", "amount": 1}'), ("a", '{"id": "a", "amount": 2}')])

    code, replayed, _ = headrace("replay", "--then-live")
    assert (code, replayed) == (0, {"pipeline": "totals", "batch_count": 1, "swapped": False, "deleted": []})
    (total,) = kafka.read_count("totals", 1)
    assert json.loads(total.value) == {"id": "a", "total": 3.0}

    code, verified, _ = headrace("verify")
    assert (code, verified["verdict"], verified["differences"]) == (0, "equal", [])

    pipelines.write_text(PIPELINES.replace("F.sum", "F.max"))
    code, (answer,), _ = headrace("check")
    assert (code, answer["can_go_on"]) == (1, False)
    assert answer["changes"][0]["what"] == "the aggregate by id no longer keeps sum(amount)"

    code, _, told = headrace("replay", "--swap", "--into", "elsewhere")
    assert code == 2
    assert "Use one of --into NAME, --then-live and --swap" in told
