"""What an example needs to be shown, as it says itself."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from headrace.cli.demo_recipe import Addresses, Capture, Recipe, parse_recipe, read_recipe
from headrace.cli.demo_start import page_to_open
from headrace.errors import ConfigError

EXAMPLES = Path(__file__).parents[3] / "examples"
RECIPE: dict[str, Any] = {
    "pipelines": "p.py",
    "generator": "g.py",
    "rate": 5,
    "unit": "orders",
    "proof": "stores",
    "is_realtime": False,
    "prepare": ["--now"],
    "generate": ["--bootstrap", "{bootstrap}"],
}


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*/demo.toml")), ids=lambda path: path.parent.name)
def test_the_recipes_of_the_examples_name_files_that_are_there(path: Path) -> None:
    recipe = read_recipe(path)
    assert (path.parent / recipe.pipelines).is_file()
    assert (path.parent / recipe.generator).is_file()
    assert (path.parent / recipe.events).exists()
    assert path.with_name("view.toml").is_file()


def test_a_recipe_says_what_it_needs() -> None:
    more = {
        "needs": ["postgres", "redis"],
        "page": "/stores",
        "run": ["--shuffle-partitions", "1"],
        "capture": {"name": "shop", "tables": ["public.*"]},
        "environment": {"CACHE": "{redis}"},
    }
    recipe = parse_recipe({**RECIPE, **more})
    assert recipe.needs == ("postgres", "redis")
    assert recipe.run == ("--shuffle-partitions", "1")
    assert recipe.capture == Capture(name="shop", tables=("public.*",))
    plain = parse_recipe(RECIPE)
    assert (plain.needs, plain.capture, plain.page, plain.run, plain.environment) == ((), None, "/", (), {})


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"needs": ["oracle"]}, "needs has 'oracle'"),
        ({"needs": "redis"}, "needs can't be 'redis'"),
        ({"events": "bank.py"}, "there are events and no database"),
        ({"proof": "luck"}, "proof is 'luck'"),
        ({"rate": 0}, "rate is 0"),
        ({"rate": True}, "rate can't be True"),
        ({"is_realtime": 1}, "is_realtime can't be 1"),
        ({"page": "stores"}, "begin it with /"),
        ({"pipeline": "x"}, "there is no field 'pipeline'"),
        ({"prepare": [7]}, "prepare can't be"),
        ({"generate": ["{postgres}"]}, "names postgres, which this demo does not have"),
        ({"generate": ["{redis}"], "needs": ["redis"]}, "holds a password"),
        ({"run": ["{redis}"], "needs": ["redis"]}, "holds a password"),
        ({"run": "--shuffle-partitions 1"}, "run can't be"),
        ({"generate": ["{"]}, "can't be read"),
        ({"environment": {"A": 7}}, "environment can't be"),
        ({"capture": {"name": "shop", "tables": ["public.*"]}}, "a capture and no database"),
        ({"capture": {"name": "shop"}}, "tables is missing"),
        ({"capture": 7}, "capture is no table"),
    ],
)
def test_a_mistake_in_a_recipe_is_said_in_words(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        parse_recipe({**RECIPE, **change})


def test_what_is_missing_or_no_toml_is_named_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "demo.toml"
    with pytest.raises(ConfigError, match=r"demo\.toml can't be read"):
        read_recipe(path)
    path.write_text("needs =")
    with pytest.raises(ConfigError, match=r"demo\.toml can't be read"):
        read_recipe(path)
    path.write_text('pipelines = "p.py"')
    with pytest.raises(ConfigError, match=r"demo\.toml: generator, rate, .* is missing"):
        read_recipe(path)


def test_addresses_stand_in_the_place_of_their_names_and_the_password_is_not_printed() -> None:
    addresses = Addresses(
        bootstrap="b:1", directory=Path("/d"), postgres="host=h", redis="redis://:secret@r:6379/0"
    )
    assert addresses.fill(["--to", "{bootstrap}", "{directory}/x", "{postgres}"]) == (
        *("--to", "b:1", "/d/x", "host=h"),
    )
    recipe = parse_recipe({**RECIPE, "needs": ["redis"], "environment": {"CACHE": "{redis}"}})
    assert addresses.environment(recipe) == {"CACHE": "redis://:secret@r:6379/0"}
    assert "secret" not in repr(addresses)


@pytest.mark.parametrize(
    ("page", "path", "opened"),
    [
        ("http://127.0.0.1:8500/?token=t", "/stores", "http://127.0.0.1:8500/stores?token=t"),
        ("http://127.0.0.1:8500/?token=t", "/", "http://127.0.0.1:8500/?token=t"),
        ("http://127.0.0.1:8500/", "/stores", "http://127.0.0.1:8500/stores"),
    ],
)
def test_another_page_is_opened_with_the_same_token(page: str, path: str, opened: str) -> None:
    assert page_to_open(page, path) == opened


def test_the_description_of_recipes_is_itself_a_recipe() -> None:
    text = Path(read_recipe.__code__.co_filename).read_text().split('"""')[1]
    block = "\n".join(line for line in text.splitlines() if line.startswith("    "))
    recipe = parse_recipe(tomllib.loads(block))
    assert isinstance(recipe, Recipe)
    assert recipe.capture is not None
