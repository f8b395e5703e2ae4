"""What read models still have of somebody who was forgotten.

The store makes personal data unreadable by destroying a key (see forgetting.py). A read model has what its
function has written, in clear, until the function takes the event that says so or the model is made anew.
Effects carry what their receivers need until they are fired, and dead letters what an error has quoted. So
whoever wants proof gives the texts that must not be found, and is told where they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from headrace.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A place in which one of the texts was found."""

    table: str
    """With its schema: that of a generation, or the one of effects and dead letters."""
    column: str
    row_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgottenThere:
    """What a look through read models, effects and dead letters has found of somebody."""

    subject: str
    behind: tuple[str, ...]
    """Projections that have not come to the event that says that the person was forgotten."""
    traces: tuple[Trace, ...]

    @property
    def is_forgotten(self) -> bool:
        """Whether nothing was found, and nothing is still to be heard of it."""
        return not self.behind and not self.traces


def check_texts(texts: Sequence[str]) -> None:
    """Raise ConfigError where there is nothing to look for, or what is found everywhere."""
    if isinstance(texts, str) or not texts or not all(text and "\0" not in text for text in texts):
        raise ConfigError(
            f"the texts to look for are {texts!r}: name some, such as the person's name and address"
        )


def texts_in(value: Any) -> Iterator[str]:
    """All that a value says, of whatever it is made."""
    match value:
        case str():
            yield value
        case bytes() | bytearray() | memoryview():
            yield bytes(value).decode(errors="replace")
        case Mapping():
            for each in (*value.keys(), *value.values()):
                yield from texts_in(each)
        case list() | tuple() | set() | frozenset():
            for each in value:
                yield from texts_in(each)
        case _ if is_dataclass(value):
            for field in fields(value):
                yield from texts_in(getattr(value, field.name))
        case _:
            yield str(value)


def has_any(value: Any, texts: Sequence[str]) -> bool:
    """Whether a value says one of the texts, as it is or as JSON has it."""
    forms = {*texts, *(json.dumps(text, ensure_ascii=False)[1:-1] for text in texts)}
    return any(form in said for said in texts_in(value) for form in forms)
