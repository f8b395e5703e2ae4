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
    no_rule = "{count} of {what}"           # the same for what names no rule

    [[controls]]                            # sliders
    name = "rate"
    label = "Transactions per second"
    minimum = 10
    maximum = 2000
    step = 10
    value = 200                             # where it stands at first
    topic = "fraud-control"                 # what moving it writes: a record with this key, and in its JSON
    key = "world"                           # all moved ones of the same topic and key: {"rate": 200, ...}

    [[buttons]]                             # what somebody else does when it is pressed
    name = "mistake"
    label = "Delete all orders"
    question = "Really?"                    # asked before
    topic = "fraud-control"                 # what pressing it writes: a record with this key, and in its JSON
    key = "mistake"                         # when that was: {"pressed_ms": 1700000000000}
    advice = "Deleted at {moment}."         # shown afterwards, line by line; may be left out. {here} is the
                                            # directory of this file, {data} that of the pipelines, and
                                            # {bootstrap} the broker

A view is data and not code, so a console shows a view of anybody's without trusting its author. An unknown
or missing field is an error: a misspelt one would else be passed over in silence.
"""

from __future__ import annotations

import math
import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Final, TypeGuard

from headrace.config.checks import check_topic_name, require
from headrace.console.decode import BROWSER_INTEGER_MAX, DEFAULT_WORDS
from headrace.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.config import ConsoleConfig

CONTROL_COUNT_MAX: Final = 12
BUTTON_COUNT_MAX: Final = 4
TEXT_LENGTH_MAX: Final = 100
LONG_TEXT_LENGTH_MAX: Final = 2_000
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
class Button:
    """Something that somebody else does who reads a topic, after a question."""

    name: str
    label: str
    question: str
    topic: str
    key: str
    advice: str = ""
    """What to do then; `{moment}` is when it was pressed, the others are filled in by `with_places`."""

    def __post_init__(self) -> None:
        check_topic_name(self.topic)
        require(
            bool(self.name and self.label and self.question), "a button needs a name, a label, a question"
        )


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
    buttons: tuple[Button, ...] = ()

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
        pressed = [button.name for button in self.buttons]
        require(len(set(pressed)) == len(pressed), "two buttons have the same name")
        require(len(pressed) <= BUTTON_COUNT_MAX, f"more than {BUTTON_COUNT_MAX} buttons")

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


def with_places(view: View, *, directory: Path, data_dir: Path, bootstrap: str) -> View:
    """The same view, with where things are in the advice of its buttons, as words of a shell."""
    places = {
        "{here}": shlex.quote(str(directory.absolute())),
        "{data}": shlex.quote(str(data_dir.absolute())),
        "{bootstrap}": shlex.quote(bootstrap),
    }

    def advice(text: str) -> str:
        for name, place in places.items():
            text = text.replace(name, place)
        return text

    return replace(
        view, buttons=tuple(replace(button, advice=advice(button.advice)) for button in view.buttons)
    )


def parse_view(content: Mapping[str, Any]) -> View:
    """The view that a TOML document describes."""
    controls = tuple(Control(**_checked(item, Control, _NUMBERS)) for item in _tables(content, "controls"))
    buttons = tuple(Button(**_checked(item, Button, frozenset())) for item in _tables(content, "buttons"))
    words = content.get("words", {})
    if not isinstance(words, dict) or not all(isinstance(text, str) for text in words.values()):
        raise ConfigError("words is not a table of texts: write [words], and a rule and its words a line")
    given = {name: value for name, value in content.items() if name not in {"controls", "buttons", "words"}}
    return View(
        **_checked(given, View, frozenset()),
        words={**DEFAULT_WORDS, **words},
        controls=controls,
        buttons=buttons,
    )


def _tables(content: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    listed = content.get(name, [])
    if not isinstance(listed, list) or not all(isinstance(item, dict) for item in listed):
        raise ConfigError(f"{name} is not a list of tables: write [[{name}]] before each")
    return listed


def is_number(value: object) -> TypeGuard[float]:
    """Whether it is a number that a slider can stand at: finite, and one that browsers hold exactly."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= BROWSER_INTEGER_MAX


_NUMBERS: Final = frozenset({"minimum", "maximum", "step", "value"})
_LONG_TEXTS: Final = frozenset({"question", "advice"})
_NAMES: Final = {"View": "a view", "Control": "a control", "Button": "a button"}


def _checked(
    given: Mapping[str, Any], kind: type[View | Control | Button], numbers: frozenset[str]
) -> dict[str, Any]:
    """The same fields, if they are those of the kind, and texts or numbers as they have to be."""
    known = {each.name: each for each in fields(kind)}
    what = _NAMES[kind.__name__]
    for name, value in given.items():
        require(name in known, f"{what} has no field {name!r}; it may have {', '.join(known)}")
        if name in numbers:
            require(is_number(value), f"{name} must be a number, not {value!r:.50}")
        elif name == "is_demo":
            require(isinstance(value, bool), f"{name} must be true or false, not {value!r:.50}")
        else:
            length_max = LONG_TEXT_LENGTH_MAX if name in _LONG_TEXTS else TEXT_LENGTH_MAX
            is_text = isinstance(value, str) and len(value) <= length_max
            require(is_text, f"{name} must be a text of at most {length_max} characters")
    needed = [name for name, each in known.items() if each.default is each.default_factory is MISSING]
    missing = [name for name in needed if name not in given]
    require(not missing, f"{what} lacks {', '.join(missing)}")
    return dict(given)
