"""What is refused before a replay takes the place of what was written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import headrace.streams as hr
from headrace.config import StreamsConfig
from headrace.errors import PipelineError
from headrace.streams.go_live import GoLive

orders = hr.topic("orders", schema="id string")


@hr.pipeline(writes=hr.topic("totals", key="id"))
def totals(orders: Any) -> Any:
    return orders


@hr.pipeline(writes=hr.topic("others", key="id"), side_outputs=[hr.topic("totals", key="id")])
def neighbour(orders: Any) -> Any:
    return orders


def test_results_are_not_swapped_in_a_topic_that_another_pipeline_writes(tmp_path: Path) -> None:
    swap = GoLive(pipeline=totals, config=StreamsConfig(data_dir=tmp_path), others=[totals, neighbour])
    with pytest.raises(PipelineError, match="totals can't be swapped: neighbour writes totals, too"):
        swap.prepare(swap.plan(), swap=True)
    assert list(tmp_path.iterdir()) == []
