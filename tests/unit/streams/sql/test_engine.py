"""What runs statements, as far as no Spark is needed for it."""

from __future__ import annotations

from pathlib import Path

from headrace.config import StreamsConfig
from headrace.streams.sql.definitions import View
from headrace.streams.sql.engine import Engine
from headrace.streams.sql.statements import CreateView


def test_a_view_that_is_there_with_another_query_stays_and_that_is_said(tmp_path: Path) -> None:
    said: list[str] = []
    engine = Engine(StreamsConfig(bootstrap="127.0.0.1:1", data_dir=tmp_path), say=said.append)
    engine.catalog.store.keep_view(View(name="v", query="SELECT id FROM orders"))
    same = CreateView(name="v", query="select id\nfrom orders", if_not_exists=True)
    assert engine.create_view(same).query == "SELECT id FROM orders"
    assert said == []
    other = CreateView(name="v", query="SELECT city FROM orders", if_not_exists=True)
    assert engine.create_view(other).query == "SELECT id FROM orders"
    assert said == ["note: there is a view v already, with another query, which stays: SELECT id FROM orders"]
