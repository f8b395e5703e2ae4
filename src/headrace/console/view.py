"""What a page about one application shows beside the general pages, as its author describes it in TOML:

    title = "Card fraud"
    input = "transactions"                  # the topic of what happens
    alerts = "fraud-alerts"                 # the topic of what is shown one by one
    late = "transactions.late"              # where events go that came too late; may be left out
    dead_letters = "transactions.dead"      # where records go that can't be read; may be left out
    event_time = "at"                       # fields of the input's JSON: when it happened,
    latitude = "lat"                        # and where; both or neither
    longitude = "lon"
    is_demo = true                          # a driver is killed without asking first; may be left out

    [words]                                 # rules in words; {name} is a field of the alert
    travel = "{km} km at {value} km/h"

    [[controls]]                            # sliders
    name = "rate"
    label = "Transactions per second"
    minimum = 10
    maximum = 2000
    step = 10
    value = 200                             # where it stands at first
    topic = "fraud-control"                 # what moving it writes: a record with this key, and in its JSON
    key = "world"                           # all moved ones of the same topic and key: {"rate": 200, ...}

A view is data and not code, so a console shows a view of anybody's without trusting its author. An unknown
or missing field is an error: a misspelt one would else be passed over in silence.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final, TypeGuard

from headrace.config.checks import check_topic_name, require
from headrace.console.decode import BROWSER_INTEGER_MAX, DEFAULT_WORDS
from headrace.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.config import ConsoleConfig

CONTROL_COUNT_MAX: Final = 12
TEXT_LENGTH_MAX: Final = 100
STEP_COUNT_MAX: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """A slider: a number that somebody else reads from a topic."""

    name: str
    """Its field in the record."""
    label: str
    minimum: float
    maximum: float
    step: float
    value: float
    """Where it stands until somebody moves it."""
    topic: str
    key: str
    unit: str = ""

    def __post_init__(self) -> None:
        check_topic_name(self.topic)
        require(bool(self.name), "a control has an empty name")
        require(
            -math.inf < self.minimum < self.maximum < math.inf
            and self.step > 0
            and (self.maximum - self.minimum) / self.step <= STEP_COUNT_MAX,
            f"control {self.name!r}: minimum, maximum and step make no slider",
        )
        require(self.allows(self.value), f"control {self.name!r}: value {self.value} is out of its range")

    def allows(self, value: float) -> bool:
        """Whether the slider can stand there."""
        return self.minimum <= value <= self.maximum


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A page about one application."""

    title: str
    input: str
    alerts: str
    late: str | None = None
    dead_letters: str | None = None
    event_time: str | None = None
    latitude: str | None = None
    longitude: str | None = None
    is_demo: bool = False
    """Whether its drivers are there to be killed: the page then does not ask first."""
    words: Mapping[str, str] = field(default_factory=lambda: dict(DEFAULT_WORDS))
    controls: tuple[Control, ...] = ()

    def __post_init__(self) -> None:
        require(bool(self.title), "the title is empty")
        for topic in self.topics:
            check_topic_name(topic)
        require(
            (self.latitude is None) == (self.longitude is None), "a place needs both latitude and longitude"
        )
        names = [control.name for control in self.controls]
        require(len(set(names)) == len(names), "two controls have the same name")
        require(len(names) <= CONTROL_COUNT_MAX, f"more than {CONTROL_COUNT_MAX} controls")

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that it names, each once."""
        named = (self.input, self.alerts, self.late, self.dead_letters)
        return tuple(dict.fromkeys(topic for topic in named if topic is not None))


def plain_view(config: ConsoleConfig) -> View:
    """The view of a console that was given none."""
    return View(title=config.alerts_topic, input=config.input_topic, alerts=config.alerts_topic)


def read_view(path: Path) -> View:
    """Read a view. Raises ConfigError that says what is wrong with it."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"the view {path} can't be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"the view {path} is not TOML: {error}") from error
    try:
        return parse_view(content)
    except ConfigError as error:
        raise ConfigError(f"the view {path} is wrong: {error}") from error


def parse_view(content: Mapping[str, Any]) -> View:
    """The view that a TOML document describes."""
    listed = content.get("controls", [])
    if not isinstance(listed, list) or not all(isinstance(item, dict) for item in listed):
        raise ConfigError("controls is not a list of tables: write [[controls]] before each")
    controls = tuple(Control(**_checked(item, Control, _NUMBERS)) for item in listed)
    words = content.get("words", {})
    if not isinstance(words, dict) or not all(isinstance(text, str) for text in words.values()):
        raise ConfigError("words is not a table of texts: write [words], and a rule and its words a line")
    given = {name: value for name, value in content.items() if name not in {"controls", "words"}}
    return View(**_checked(given, View, frozenset()), words={**DEFAULT_WORDS, **words}, controls=controls)


def is_number(value: object) -> TypeGuard[float]:
    """Whether it is a number that a slider can stand at: finite, and one that browsers hold exactly."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= BROWSER_INTEGER_MAX


_NUMBERS: Final = frozenset({"minimum", "maximum", "step", "value"})


def _checked(given: Mapping[str, Any], kind: type[View | Control], numbers: frozenset[str]) -> dict[str, Any]:
    """The same fields, if they are those of the kind, and texts or numbers as they have to be."""
    known = {each.name: each for each in fields(kind)}
    what = "a control" if kind is Control else "a view"
    for name, value in given.items():
        require(name in known, f"{what} has no field {name!r}; it may have {', '.join(known)}")
        if name in numbers:
            require(is_number(value), f"{name} must be a number, not {value!r:.50}")
        elif name == "is_demo":
            require(isinstance(value, bool), f"{name} must be true or false, not {value!r:.50}")
        else:
            is_text = isinstance(value, str) and len(value) <= TEXT_LENGTH_MAX
            require(is_text, f"{name} must be a text of at most {TEXT_LENGTH_MAX} characters")
    needed = [name for name, each in known.items() if each.default is each.default_factory is MISSING]
    missing = [name for name in needed if name not in given]
    require(not missing, f"{what} lacks {', '.join(missing)}")
    return dict(given)
