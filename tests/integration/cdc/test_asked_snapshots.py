"""Snapshots that a person asks for: of tables that are captured, by conditions that hold water."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from headrace.cli.capture_runner import ask_snapshot
from headrace.errors import ConfigError

if TYPE_CHECKING:
    from tests.integration.cdc.conftest import World


def test_a_snapshot_of_a_table_that_is_published_and_not_captured_is_refused(world: World) -> None:
    world.database.execute(
        "CREATE TABLE orders (id int PRIMARY KEY); CREATE TABLE secrets (id int PRIMARY KEY); "
        "CREATE TABLE outbox (id int PRIMARY KEY); CREATE PUBLICATION shop FOR ALL TABLES"
    )
    config = replace(world.config, exclude_tables=("public.secrets",), outbox_table="public.outbox")
    for table in ("public.secrets", "public.outbox"):
        with pytest.raises(ConfigError, match=r"is not captured by shop: it captures public\.orders$"):
            ask_snapshot(config, [table], None)
    assert ask_snapshot(config, ["public.orders"], "id > 7")


def test_a_condition_that_the_database_does_not_understand_is_refused(world: World) -> None:
    world.database.execute("CREATE TABLE orders (id int PRIMARY KEY); CREATE PUBLICATION shop FOR ALL TABLES")
    with pytest.raises(ConfigError, match=r"is no condition on rows of public\.orders"):
        ask_snapshot(world.config, ["public.orders"], "ident > 7")
