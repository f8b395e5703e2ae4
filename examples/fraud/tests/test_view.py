"""What the page is told of this example is what the example does."""

from __future__ import annotations

import ast
import json
import re
from dataclasses import asdict, fields
from pathlib import Path

import pytest

from card_world import LATE_SHARE, Limits
from generate import CONTROL, RULES, STREAMS, TABLES, TRANSACTIONS, Control, read_control, read_limits
from headrace.console.view import Control as Slider
from headrace.console.view import read_view

EXAMPLE = Path(__file__).parents[1]
VIEW = read_view(EXAMPLE / "view.toml")
PIPELINE = ast.parse((EXAMPLE / "pipeline.py").read_text())
TEXTS = {node.value for node in ast.walk(PIPELINE) if isinstance(node, ast.Constant)}
"""The constants of the pipeline, which is not imported: that would need Spark."""


def rules() -> set[str]:
    """The rules that the pipeline has: what it names evidence for."""
    for node in ast.walk(PIPELINE):
        match node:
            case ast.Assign(targets=[ast.Name(id="evidence")], value=ast.Dict(keys=keys)):
                return {ast.literal_eval(key) for key in keys if key is not None}
            case _:
                pass
    raise AssertionError("the pipeline names no evidence")


def test_its_topics_are_those_of_the_generator_and_the_pipeline() -> None:
    assert VIEW.input == TRANSACTIONS
    assert {VIEW.input, VIEW.alerts, VIEW.late} <= {*STREAMS, *TABLES} & TEXTS
    assert VIEW.dead_letters == f"{TRANSACTIONS}.dead-letters"


def test_its_words_are_about_the_rules_and_name_fields_of_alerts() -> None:
    assert rules() <= VIEW.words.keys()
    named = {name for rule in rules() for name in re.findall(r"{(\w+)}", VIEW.words[rule])}
    assert named == {"count", "value", "km"}
    assert {"count", "verdict.value", "verdict.km"} <= TEXTS


def test_its_fields_of_a_transaction_are_those_of_the_schema() -> None:
    schema = next(str(text) for text in TEXTS if str(text).startswith("tx_id string"))
    names = {column.split()[0] for column in schema.split(",")}
    assert {VIEW.event_time, VIEW.latitude, VIEW.longitude} <= names


@pytest.mark.parametrize("slider", VIEW.controls, ids=lambda slider: slider.name)
def test_the_generator_obeys_a_slider_from_one_end_to_the_other(slider: Slider) -> None:
    for value in (slider.minimum, slider.value, slider.maximum):
        message = json.dumps({slider.name: value}).encode()
        changed = read_control(message) if slider.topic == CONTROL else read_limits(message, Limits())
        assert asdict(changed)[slider.name] == value


def test_its_sliders_are_all_that_can_be_changed_and_stand_where_the_generator_begins() -> None:
    by_topic = {topic: {c.name: c for c in VIEW.controls if c.topic == topic} for topic in (CONTROL, RULES)}
    assert by_topic[CONTROL].keys() == {field.name for field in fields(Control)}
    assert {name: control.value for name, control in by_topic[RULES].items()} == asdict(Limits())
    assert by_topic[CONTROL]["late_share"].value == LATE_SHARE
