"""Where tables ended at the first start, and up to where micro-batches read."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path

import pytest

from headrace.errors import ConfigError
from headrace.streams.progress_log import Offsets
from headrace.streams.table_ends import BatchEnds, read_table_ends, settle_table_ends


class Cluster:
    """Topics whose ends move on whenever somebody asks."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    def ask(self, topics: Collection[str]) -> Offsets:
        self.asked.append(list(topics))
        return {(topic, 0): 10 * len(self.asked) for topic in topics}


def test_the_cluster_is_asked_once_for_each_topic(tmp_path: Path) -> None:
    cluster = Cluster()
    assert read_table_ends(tmp_path, ["products"]) == {}
    assert settle_table_ends(tmp_path, ["products"], cluster.ask) == {"products-0": 10}
    assert settle_table_ends(tmp_path, ["products", "shops"], cluster.ask) == {
        "products-0": 10,
        "shops-0": 20,
    }
    assert settle_table_ends(tmp_path, ["shops"], cluster.ask) == {"shops-0": 20}
    assert cluster.asked == [["products"], ["shops"]]
    assert read_table_ends(tmp_path, ["products"]) == {"products-0": 10}


def test_a_note_that_can_not_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "tables.json").write_text("[")
    with pytest.raises(ConfigError, match=r"tables.json does not say where the topics of tables ended"):
        read_table_ends(tmp_path, ["products"])


def test_the_ends_of_a_micro_batch_are_those_that_all_sources_have_come_to(tmp_path: Path) -> None:
    sources = [{"products": {"0": 7, "1": 3}}, {"orders": {"0": 5}}, {"products": {"0": 6, "1": 4}}]
    lines = ["v1", json.dumps({"batchWatermarkMs": 0}), *map(json.dumps, sources)]
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "2").write_text("\n".join(lines))
    ends = BatchEnds(checkpoint=str(tmp_path))
    assert ends(2) == {"products-0": 6, "products-1": 3, "orders-0": 5}
