"""What a demo creates before its pipeline does."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

import headrace
from headrace.cli.demo_parts import example_dir, prepare, tell_rate
from headrace.cli.demo_recipe import FILE_NAME, Addresses, read_recipe
from headrace.config import ConsoleConfig
from headrace.console.actions import Actions
from headrace.console.catalog import KafkaCatalog
from headrace.console.feed import client_settings
from headrace.console.view import read_view
from headrace.errors import FaultError


def prepare_fraud(bootstrap: str) -> None:
    example = example_dir("fraud")
    recipe = read_recipe(example / FILE_NAME)
    addresses = Addresses(bootstrap=bootstrap, directory=Path())
    prepare(example / recipe.generator, addresses.fill(recipe.prepare))


def test_topics_that_are_tables_are_compacted_and_creating_them_again_changes_nothing(
    headrace_broker: headrace.Broker,
) -> None:
    for _ in range(2):
        prepare_fraud(headrace_broker.bootstrap)

    admin = AdminClient({"bootstrap.servers": headrace_broker.bootstrap, "log_level": 0})
    names = ("transactions", "card-profiles", "card-status", "fraud-alerts", "fraud-control", "fraud-rules")
    asked = admin.describe_configs([ConfigResource(ResourceType.TOPIC, name) for name in names])
    policies = {resource.name: answer.result()["cleanup.policy"].value for resource, answer in asked.items()}
    assert {name for name, policy in policies.items() if policy == "compact"} == {
        "card-profiles",
        "card-status",
        "fraud-control",
        "fraud-rules",
    }


def test_what_can_not_be_prepared_is_a_sentence(tmp_path: Path) -> None:
    generator = tmp_path / "generate.py"
    generator.write_text("import sys; sys.exit('error: no broker answers at ' + sys.argv[1])")

    with pytest.raises(FaultError, match="could not be prepared: error: no broker answers at here"):
        prepare(generator, ("here",))


def test_the_page_learns_at_which_rate_the_demo_begins_and_moving_another_slider_keeps_it(
    headrace_broker: headrace.Broker,
) -> None:
    example, bootstrap = example_dir("fraud"), headrace_broker.bootstrap
    prepare_fraud(bootstrap)
    tell_rate(example / "view.toml", bootstrap, 1_000)
    tell_rate(example / "view.toml", bootstrap, 1_000_000)
    config = ConsoleConfig(bootstrap=bootstrap)
    view, settings = read_view(example / "view.toml"), client_settings(config)
    catalog, actions = KafkaCatalog(settings), Actions(config, view, settings)
    assert actions.recall(catalog) == {"rate": 1_000}
    actions.move("late_share", 0.2)
    assert Actions(config, view, settings).recall(catalog) == {"rate": 1_000, "late_share": 0.2}
