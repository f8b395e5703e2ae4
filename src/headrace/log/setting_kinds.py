"""How the text of a topic's setting is read, by Kafka's rules: trimmed, typed, within its range.

A `Kind` reads a text to a value and formats a value as text; the two agree. What is wrong with a text is said
as what would be allowed; the caller knows the setting's name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from math import isnan
from typing import Final, Protocol

from headrace.config import LONG_MAX

INT_MAX: Final = 2**31 - 1

_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_REPLICA: Final = re.compile(r"[0-9]+:[0-9]+")

SettingValue = int | float | bool | str | tuple[str, ...] | None


class SettingType(IntEnum):
    """The numbers of Kafka's configuration types."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7


class Kind(Protocol):
    """A type of values, and the values of it that are allowed."""

    @property
    def setting_type(self) -> SettingType:
        """What clients are told about the type."""
        ...

    def read(self, text: str) -> SettingValue:
        """The value; ValueError says what is allowed."""
        ...

    def format(self, value: SettingValue) -> str:
        """The value as Kafka writes it."""
        ...


@dataclass(frozen=True, slots=True)
class Integer:
    """A whole number in a range; `also` lists single numbers outside of it."""

    setting_type: SettingType
    minimum: int
    maximum: int
    also: tuple[int, ...] = ()

    def read(self, text: str) -> int:
        """The number."""
        if not _INTEGER.fullmatch(text.strip()):
            raise ValueError(f"a whole number {self._allowed()}")
        value = int(text)
        if not self.minimum <= value <= self.maximum and value not in self.also:
            raise ValueError(f"a whole number {self._allowed()}")
        return value

    def format(self, value: SettingValue) -> str:
        """The number in digits."""
        return str(value)

    def _allowed(self) -> str:
        others = "".join(f" or {value}" for value in self.also)
        return f"from {self.minimum} to {self.maximum}{others}"


def int_kind(minimum: int, maximum: int = INT_MAX, *, also: tuple[int, ...] = ()) -> Integer:
    """A number of 32 bits."""
    return Integer(SettingType.INT, minimum, maximum, also)


def long_kind(minimum: int) -> Integer:
    """A number of 64 bits."""
    return Integer(SettingType.LONG, minimum, LONG_MAX)


@dataclass(frozen=True, slots=True)
class Fraction:
    """A number from 0 to 1."""

    setting_type: SettingType = SettingType.DOUBLE

    def read(self, text: str) -> float:
        """The number."""
        try:
            value = float(text.replace("_", "?"))
        except ValueError:
            raise ValueError("a number from 0 to 1") from None
        if isnan(value) or not 0 <= value <= 1:
            raise ValueError("a number from 0 to 1")
        return value

    def format(self, value: SettingValue) -> str:
        """The shortest text that is the number."""
        return repr(value)


@dataclass(frozen=True, slots=True)
class Truth:
    """true or false."""

    setting_type: SettingType = SettingType.BOOLEAN

    def read(self, text: str) -> bool:
        """The truth value."""
        word = text.strip().lower()
        if word not in {"true", "false"}:
            raise ValueError("true or false")
        return word == "true"

    def format(self, value: SettingValue) -> str:
        """In small letters."""
        return str(value).lower()


@dataclass(frozen=True, slots=True)
class Choice:
    """One of some words."""

    words: tuple[str, ...]
    setting_type: SettingType = SettingType.STRING

    def read(self, text: str) -> str:
        """The word."""
        if text.strip() not in self.words:
            raise ValueError(f"one of {', '.join(self.words)}")
        return text.strip()

    def format(self, value: SettingValue) -> str:
        """The word."""
        return str(value)


@dataclass(frozen=True, slots=True)
class Words:
    """Any of some words, each once, with commas between; none at all is allowed too."""

    words: tuple[str, ...]
    setting_type: SettingType = SettingType.LIST

    def read(self, text: str) -> tuple[str, ...]:
        """The words in the order in which they were given."""
        found = _split(text)
        if not set(found).issubset(self.words):
            raise ValueError(f"any of {', '.join(self.words)}, with a comma between them")
        return tuple(dict.fromkeys(found))

    def format(self, value: SettingValue) -> str:
        """With commas."""
        return _join(value)


@dataclass(frozen=True, slots=True)
class Replicas:
    """A list of partition:broker, or * for all."""

    setting_type: SettingType = SettingType.LIST

    def read(self, text: str) -> tuple[str, ...]:
        """The replicas as they were given."""
        found = _split(text)
        if found != ("*",) and not all(map(_REPLICA.fullmatch, found)):
            raise ValueError("* or a list such as 0:1,1:1 (partition:broker)")
        return found

    def format(self, value: SettingValue) -> str:
        """With commas."""
        return _join(value)


def _split(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",")) if text.strip() else ()


def _join(value: SettingValue) -> str:
    assert isinstance(value, tuple)
    return ",".join(value)
