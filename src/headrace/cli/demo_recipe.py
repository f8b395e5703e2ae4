"""What an example needs to be shown by `headrace demo`, as its `demo.toml` says:

    needs = ["postgres", "redis"]           # beside a broker, a page and its pipelines; may be left out
    pipelines = "shop_pipelines.py"         # files beside it
    generator = "shop_generate.py"
    rate = 20                               # what the generator is told with --rate, unless the user says so
    unit = "transactions"                   # what it makes that many of in a second
    proof = "stores"                        # what must be seen: `alerts`, `results`, changes in all `stores`
    page = "/stores"                        # which page to open; the first one if nothing is said
    is_realtime = false                     # whether pipelines run in real-time mode
    prepare = ["--dsn", "{postgres}", "--tables-only"]     # options of the generator, before all else
    generate = ["--dsn", "{postgres}"]                     # the same when it runs, beside --rate and --seed
    run = ["--shuffle-partitions", "1"]     # further options of `headrace run`; may be left out
    events = "bank.py"                      # deciders of the event store that the page shows; may be left out

    [capture]                               # what is captured from PostgreSQL; may be left out
    name = "shop"
    tables = ["public.*"]

    [environment]                           # what pipelines and generator find in their environment
    SHOP_REDIS = "{redis}"

`{bootstrap}`, `{directory}`, `{postgres}` and `{redis}` stand for where these are in this run. The file is
part of the package, or of the user's own checkout: it is trusted as the example's code is.
"""

from __future__ import annotations

import string
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, Final, Literal, get_args

from headrace.config.checks import require
from headrace.errors import ConfigError

FILE_NAME: Final = "demo.toml"
Need = Literal["postgres", "redis"]
Proof = Literal["alerts", "results", "stores"]
_ALWAYS_THERE: Final = frozenset({"bootstrap", "directory"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """What is captured from PostgreSQL."""

    name: str
    tables: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What a demo is made of; see the top of this file."""

    pipelines: str
    generator: str
    rate: int
    unit: str
    proof: Proof
    is_realtime: bool
    prepare: tuple[str, ...]
    generate: tuple[str, ...]
    run: tuple[str, ...] = ()
    needs: tuple[Need, ...] = ()
    page: str = "/"
    events: str = ""
    capture: Capture | None = None
    environment: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for need in self.needs:
            require(need in get_args(Need), f"needs has {need!r}; use {', '.join(get_args(Need))}")
        require(self.proof in get_args(Proof), f"proof is {self.proof!r}; use {', '.join(get_args(Proof))}")
        require(self.rate >= 1, f"rate is {self.rate}; use at least 1")
        require(self.page.startswith("/"), f"page is {self.page!r}; begin it with /")
        require(
            self.capture is None or "postgres" in self.needs,
            'there is a capture and no database: write needs = ["postgres"]',
        )
        require(
            not self.events or "postgres" in self.needs,
            'there are events and no database: write needs = ["postgres"]',
        )
        for text in (*self.prepare, *self.generate, *self.run, *self.environment.values()):
            unknown = sorted(_placeholders(text) - {*_ALWAYS_THERE, *self.needs})
            require(not unknown, f"{text!r} names {', '.join(unknown)}, which this demo does not have")
        is_told = any("redis" in _placeholders(text) for text in (*self.prepare, *self.generate, *self.run))
        require(
            not is_told, "{redis} holds a password, which everybody sees in options: put it in [environment]"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Addresses:
    """Where the parts of a demo are."""

    bootstrap: str
    directory: Path
    postgres: str | None = None
    redis: str | None = field(default=None, repr=False)
    """With its password."""

    def fill(self, texts: Iterable[str]) -> tuple[str, ...]:
        """The same texts with addresses in place of their names."""
        known = {each.name: str(getattr(self, each.name) or "") for each in fields(self)}
        return tuple(text.format(**known) for text in texts)

    def environment(self, recipe: Recipe) -> dict[str, str]:
        """What pipelines and generator find in their environment."""
        return dict(zip(recipe.environment, self.fill(recipe.environment.values()), strict=True))


def read_recipe(path: Path) -> Recipe:
    """The recipe in a file."""
    try:
        content = tomllib.loads(path.read_text("utf-8"))
        return parse_recipe(content)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} can't be read: {error}") from error
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def parse_recipe(content: Mapping[str, Any]) -> Recipe:
    """The recipe that a TOML document describes."""
    given = dict(content)
    capture = given.pop("capture", None)
    if capture is not None:
        capture = Capture(**_checked(capture, Capture))
    return Recipe(**_checked(given, Recipe), capture=capture)


def _checked(given: object, kind: type[Recipe | Capture]) -> dict[str, Any]:
    """The same fields, if they are those of the kind and what they have to be."""
    if not isinstance(given, dict):
        raise ConfigError(f"{kind.__name__.lower()} is no table")
    known = {each.name: each for each in fields(kind)}
    found: dict[str, Any] = {}
    for name, value in given.items():
        require(name in known, f"there is no field {name!r}; there may be {', '.join(known)}")
        found[name] = tuple(value) if isinstance(value, list) else value
        require(_fits(found[name], str(known[name].type)), f"{name} can't be {value!r}")
    missing = [
        name
        for name, each in known.items()
        if each.default is MISSING and each.default_factory is MISSING and name not in given
    ]
    require(not missing, f"{', '.join(missing)} is missing")
    return found


def _fits(value: object, kind: str) -> bool:
    if kind.startswith("tuple"):
        return isinstance(value, tuple) and all(isinstance(each, str) for each in value)
    if kind.startswith("Mapping"):
        return isinstance(value, dict) and all(isinstance(each, str) for each in value.values())
    if kind in {"int", "bool"}:
        return type(value).__name__ == kind
    return isinstance(value, str)


def _placeholders(text: str) -> set[str]:
    try:
        return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}
    except ValueError as error:
        raise ConfigError(f"{text!r} can't be read: {error}") from error
