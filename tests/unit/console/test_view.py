"""What a page about one application shows, as its author describes it."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from headrace.console.decode import DEFAULT_WORDS
from headrace.console.view import Button, Control, View, parse_view, read_view, with_places
from headrace.errors import ConfigError

EXAMPLES = Path(__file__).parents[3] / "examples"
CONTROL: dict[str, Any] = {
    "name": "rate",
    "label": "Per second",
    "minimum": 10,
    "maximum": 2000,
    "step": 10,
    "value": 200,
    "topic": "control",
    "key": "world",
}
BUTTON: dict[str, Any] = {
    "name": "mistake",
    "label": "Delete all",
    "question": "Really?",
    "topic": "control",
    "key": "mistake",
}
VIEW: dict[str, Any] = {"title": "Orders", "input": "orders", "alerts": "order-alerts"}


def test_a_view_needs_a_title_and_two_topics() -> None:
    view = parse_view(VIEW)
    assert view == View(title="Orders", input="orders", alerts="order-alerts")
    assert view.topics == ("orders", "order-alerts")
    assert view.words == DEFAULT_WORDS


def test_a_view_says_what_else_there_is() -> None:
    more = {"late": "orders.late", "event_time": "at", "latitude": "lat", "longitude": "lon"}
    view = parse_view({**VIEW, **more, "words": {"rush": "{count} at once"}, "controls": [CONTROL]})
    assert view.topics == ("orders", "order-alerts", "orders.late")
    assert view.words["rush"] == "{count} at once"
    assert view.controls == (Control(**CONTROL),)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"title": ""}, "the title is empty"),
        ({"titel": "x"}, "a view has no field 'titel'"),
        ({"input": "a b"}, "is not a topic name"),
        ({"late": 7}, "late must be a text"),
        ({"is_demo": 1}, "is_demo must be true or false"),
        ({"title": "x" * 101}, "at most 100 characters"),
        ({"latitude": "lat"}, "both latitude and longitude"),
        ({"words": {"rush": 7}}, "words is not a table of texts"),
        ({"controls": {}}, "controls is not a list of tables"),
        ({"controls": [CONTROL, CONTROL]}, "two controls have the same name"),
        ({"controls": [{**CONTROL, "name": f"c{n}"} for n in range(13)]}, "more than 12 controls"),
    ],
)
def test_a_mistake_in_a_view_is_said_in_words(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        parse_view({**VIEW, **change})


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"name": ""}, "empty name"),
        ({"minimum": 2000}, "make no slider"),
        ({"step": 0}, "make no slider"),
        ({"step": 1e-9}, "make no slider"),
        ({"value": 5}, "value 5 is out of its range"),
        ({"value": "5"}, "value must be a number"),
        ({"value": True}, "value must be a number"),
        ({"maximum": float("inf")}, "maximum must be a number"),
        ({"maximum": 10**400}, "maximum must be a number"),
        ({"topic": ".."}, "is not a topic name"),
        ({"colour": "red"}, "a control has no field 'colour'"),
    ],
)
def test_a_mistake_in_a_control_is_said_in_words(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        parse_view({**VIEW, "controls": [{**CONTROL, **change}]})


def test_a_button_has_a_question_and_may_have_long_advice() -> None:
    advice = "{moment}\n" * 100
    view = parse_view({**VIEW, "buttons": [{**BUTTON, "advice": advice}]})
    assert view.buttons == (Button(**BUTTON, advice=advice),)


@pytest.mark.parametrize(
    ("buttons", "problem"),
    [
        ({}, "buttons is not a list of tables"),
        ([{**BUTTON, "label": ""}], "needs a name, a label, a question"),
        ([{**BUTTON, "topic": ".."}], "is not a topic name"),
        ([{**BUTTON, "command": "rm"}], "a button has no field 'command'"),
        ([{**BUTTON, "advice": "x" * 2_001}], "at most 2000 characters"),
        ([{**BUTTON, "label": "x" * 101}], "at most 100 characters"),
        ([BUTTON, BUTTON], "two buttons have the same name"),
        ([{**BUTTON, "name": f"b{number}"} for number in range(5)], "more than 4 buttons"),
        ([{"name": "x"}], "a button lacks label, question, topic, key"),
    ],
)
def test_a_mistake_in_a_button_is_said_in_words(buttons: object, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        parse_view({**VIEW, "buttons": buttons})


def test_what_is_missing_is_named() -> None:
    with pytest.raises(ConfigError, match="a view lacks input, alerts"):
        parse_view({"title": "Orders"})
    with pytest.raises(ConfigError, match="a control lacks key"):
        parse_view({**VIEW, "controls": [{k: v for k, v in CONTROL.items() if k != "key"}]})


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*/view.toml")), ids=lambda path: path.parent.name)
def test_the_views_of_the_examples_are_right(path: Path) -> None:
    assert read_view(path).title


def test_a_file_that_is_missing_or_no_toml_is_said_in_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "view.toml"
    with pytest.raises(ConfigError, match=r"view\.toml can't be read"):
        read_view(path)
    path.write_text("title =")
    with pytest.raises(ConfigError, match=r"view\.toml is not TOML"):
        read_view(path)
    path.write_text('title = "x"')
    with pytest.raises(ConfigError, match=r"view\.toml is wrong: a view lacks"):
        read_view(path)


def test_the_description_of_views_is_itself_a_view() -> None:
    text = (Path(read_view.__code__.co_filename)).read_text().split('"""')[1]
    block = "\n".join(line for line in text.splitlines() if line.startswith("    "))
    view = parse_view(tomllib.loads(block))
    assert (view.controls[0].name, view.buttons[0].name) == ("rate", "mistake")


def test_the_advice_of_a_button_tells_where_things_are_as_a_shell_reads_it() -> None:
    view = parse_view({**VIEW, "buttons": [{**BUTTON, "advice": "{here}/x {data} {bootstrap} {moment}"}]})
    placed = with_places(view, directory=Path("/a b"), data_dir=Path("/data"), bootstrap="h:1")
    assert placed.buttons[0].advice == "'/a b'/x /data h:1 {moment}"
