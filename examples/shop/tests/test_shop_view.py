"""What the page and the demo are told of this example is what the example does."""

from __future__ import annotations

import ast
import json
import re
import tomllib
from pathlib import Path

import pytest

from headrace.cli.demo_recipe import read_recipe
from headrace.console.view import read_view, with_places
from shop_control import CONTROL, Control, Unreadable, read_control

EXAMPLE = Path(__file__).parents[1]
VIEW = read_view(EXAMPLE / "view.toml")
PIPELINES = ast.parse((EXAMPLE / "shop_pipelines.py").read_text())
TEXTS = {node.value for node in ast.walk(PIPELINES) if isinstance(node, ast.Constant)}
"""The constants of the pipelines, which are not imported: that would need Spark."""


def test_its_topics_are_those_of_the_capture_and_the_pipelines() -> None:
    recipe = read_recipe(EXAMPLE / "demo.toml")
    assert recipe.capture is not None
    assert VIEW.input.startswith(f"{recipe.capture.name}.public.")
    assert {VIEW.input, VIEW.alerts} <= TEXTS
    assert set(recipe.environment) <= TEXTS


def test_its_programs_are_those_of_the_example() -> None:
    (button,) = VIEW.buttons
    words = button.advice.replace(":", " ").split()
    files = [word.removeprefix("{here}/") for word in words if word.startswith("{here}/")]
    assert files == ["shop_recovery.py", "shop_restore.py", "shop_pipelines.py"]
    assert all((EXAMPLE / file).is_file() for file in files)


def test_what_it_tells_has_a_place_for_all_names() -> None:
    (button,) = with_places(VIEW, directory=EXAMPLE, data_dir=Path("a b"), bootstrap="h:1").buttons
    assert set(re.findall(r"\{\w*\}", button.advice)) == {"{moment}"}
    assert f"export HEADRACE_DATA='{Path.cwd()}/a b'\n" in button.advice
    assert f"python {EXAMPLE}/shop_restore.py\n" in button.advice


def test_the_shop_obeys_its_slider_from_one_end_to_the_other() -> None:
    (slider,) = VIEW.controls
    assert slider.topic == CONTROL
    for value in (slider.minimum, slider.value, slider.maximum):
        message = json.dumps({slider.name: value}).encode()
        assert read_control(slider.key.encode(), message) == Control(rate=value)


def test_the_shop_makes_a_mistake_when_the_button_is_pressed() -> None:
    (button,) = VIEW.buttons
    assert button.topic == CONTROL
    assert read_control(button.key.encode(), b'{"pressed_ms": 1000}') == Control(is_mistake=True)


@pytest.mark.parametrize(
    "value", [b"", b"[]", b'{"rate": 0}', b'{"rate": "fast"}', b'{"rate": true}', b"\xff"]
)
def test_a_record_that_asks_for_what_can_not_be_is_refused(value: bytes) -> None:
    with pytest.raises(Unreadable):
        read_control(b"world", value)


def test_the_rate_of_the_demo_is_where_the_slider_stands() -> None:
    recipe = tomllib.loads((EXAMPLE / "demo.toml").read_text())
    (slider,) = VIEW.controls
    assert recipe["rate"] == slider.value
