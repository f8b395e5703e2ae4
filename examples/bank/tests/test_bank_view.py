"""What the page and the demo are told of this example is what the example does."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from bank_control import CONTROL, Unreadable, read_rate
from bank_read_models import READ_MODELS
from headrace.cli.demo_recipe import read_recipe
from headrace.cli.event_file import load_event_file
from headrace.console.view import read_view
from headrace.events.postgres.journal import SCHEMA

EXAMPLE = Path(__file__).parents[1]
VIEW = read_view(EXAMPLE / "view.toml")
RECIPE = read_recipe(EXAMPLE / "demo.toml")
PIPELINES = ast.parse((EXAMPLE / "bank_pipeline.py").read_text())
TEXTS = {node.value for node in ast.walk(PIPELINES) if isinstance(node, ast.Constant)}
"""The constants of the pipelines, which are not imported: that would need Spark."""


def test_its_topics_are_those_of_the_capture_and_the_pipeline() -> None:
    assert RECIPE.capture is not None
    assert RECIPE.capture.tables == (f"{SCHEMA}.events",)
    assert VIEW.input == f"{RECIPE.capture.name}.{SCHEMA}.events"
    assert {VIEW.input, VIEW.alerts} <= TEXTS


def test_the_page_is_given_all_deciders_and_read_models() -> None:
    file = load_event_file(EXAMPLE / RECIPE.events)
    assert list(file.deciders) == ["Account", "AccountWithoutFees", "Transfer"]
    assert file.by_category() == {
        "account": file.decider("Account"),
        "transfer": file.decider("Transfer"),
    }
    assert set(file.projections) == {each.name for each in READ_MODELS}


def test_the_bank_obeys_its_slider_from_one_end_to_the_other() -> None:
    (slider,) = VIEW.controls
    assert slider.topic == CONTROL
    for value in (slider.minimum, slider.value, slider.maximum):
        assert read_rate(json.dumps({slider.name: value}).encode()) == value
    assert slider.value == RECIPE.rate


@pytest.mark.parametrize(
    "value", [b"", b"[]", b"{}", b'{"rate": 0}', b'{"rate": "fast"}', b'{"rate": true}', b"\xff"]
)
def test_a_record_that_asks_for_what_can_not_be_is_refused(value: bytes) -> None:
    with pytest.raises(Unreadable):
        read_rate(value)
