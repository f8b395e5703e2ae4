"""Regular expressions over topic names: RE2's syntax, read into a small tree.

    alternatives  = sequence { "|" sequence }
    sequence      = { atom [ ( "*" | "+" | "?" | "{" n [ "," [ m ] ] "}" ) [ "?" ] ] }
    atom          = "(" [ "?:" | "?i:" | "?P<name>" ] alternatives ")" | "(?i)" | "[" class "]"
                  | "." | "^" | "$" | "\\" escape | any other character

RE2 has no back references and does not look ahead or behind, and so needs no backtracking. Topic names have
65 different characters, so whatever matches one character is simply the set of those that it matches.
"""

from __future__ import annotations

import re
import string
import unicodedata
from dataclasses import dataclass
from typing import Final

from headrace.errors import ConfigError

NAME_CHARACTERS: Final = frozenset(string.ascii_letters + string.digits + "._-")
WORD: Final = NAME_CHARACTERS - set(".-")
REPEAT_COUNT_MAX: Final = 1_000
DEPTH_MAX: Final = 100

_REPETITION: Final = re.compile(r"(?:(?P<star>\*)|(?P<plus>\+)|(?P<maybe>\?)|\{(\d+)(,(\d*))?\})\??")
_GROUP: Final = re.compile(r"\?(?:P?<\w+>|(?P<on>[imsU]*)(?:-(?P<off>[imsU]+))?(?P<end>[:)]))")
_CODE: Final = re.compile(r"x(?:\{([0-9a-fA-F]{1,6})\}|([0-9a-fA-F]{2}))")
_PROPERTY: Final = re.compile(r"[pP](?:\{(\^?)(\w+)\}|(\w))")

_CLASSES: Final = {"d": frozenset(string.digits), "w": WORD, "s": frozenset[str]()}
_POSIX: Final = {
    "alnum": frozenset(string.ascii_letters + string.digits),
    "alpha": frozenset(string.ascii_letters),
    "ascii": NAME_CHARACTERS,
    "blank": frozenset[str](),
    "cntrl": frozenset[str](),
    "digit": frozenset(string.digits),
    "graph": NAME_CHARACTERS,
    "lower": frozenset(string.ascii_lowercase),
    "print": NAME_CHARACTERS,
    "punct": frozenset("._-"),
    "space": frozenset[str](),
    "upper": frozenset(string.ascii_uppercase),
    "word": WORD,
    "xdigit": frozenset(string.hexdigits),
}
_CONTROLS: Final = frozenset("afnrtv")
"""Escapes for characters that no name has."""
_ASSERTIONS: Final = {"A": "start", "z": "end", "b": "boundary", "B": "inside"}


@dataclass(frozen=True, slots=True)
class Characters:
    """One character out of a set."""

    members: frozenset[str]


@dataclass(frozen=True, slots=True)
class Assertion:
    """A place: start, end, boundary, or inside (a word or its surroundings)."""

    kind: str


@dataclass(frozen=True, slots=True)
class Sequence:
    """One after the other."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Alternatives:
    """One of them."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """Many times. No maximum is None."""

    item: Node
    count_min: int
    count_max: int | None


Node = Characters | Assertion | Sequence | Alternatives | Repeat


def parse_pattern(text: str) -> Node:
    """Read an expression, or say what is wrong with it."""
    parser = _Parser(text)
    node = parser.alternatives()
    if not parser.is_at_end:
        raise ConfigError("unexpected )")
    return node


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._depth = 0
        self._ignores_case = False

    @property
    def is_at_end(self) -> bool:
        return self._position == len(self._text)

    def alternatives(self) -> Node:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise ConfigError("expression nests too deeply")
        items = [self._sequence()]
        while self._take("|"):
            items.append(self._sequence())
        self._depth -= 1
        return items[0] if len(items) == 1 else Alternatives(tuple(items))

    def _sequence(self) -> Node:
        items: list[Node] = []
        while not self.is_at_end and self._next() not in "|)":
            if self._take("\\Q"):
                items += self._quoted()
            elif (node := self._atom()) is not None:
                items.append(self._repeated(node))
        return Sequence(tuple(items))

    def _atom(self) -> Node | None:
        """One item; None for flags, which stand for themselves."""
        character = self._next()
        self._position += 1
        match character:
            case "(":
                return self._group()
            case "[":
                return Characters(self._cased(self._class()))
            case "^" | "$":
                return Assertion("start" if character == "^" else "end")
            case "\\":
                return self._escape()
            case "*" | "+" | "?":
                raise ConfigError(f"missing argument to repetition operator: {character}")
        return Characters(NAME_CHARACTERS if character == "." else self._cased(frozenset(character)))

    def _repeated(self, node: Node) -> Node:
        found = self._match(_REPETITION)
        if found is None:
            return node
        if self._match(_REPETITION) is not None:
            raise ConfigError(f"invalid nested repetition operator: {found[0]}")
        if found["star"] or found["plus"] or found["maybe"]:
            return Repeat(node, int(found["plus"] is not None), 1 if found["maybe"] else None)
        count_min = int(found[4])
        count_max = (int(found[6]) if found[6] else None) if found[5] else count_min
        if max(count_min, count_max or 0) > REPEAT_COUNT_MAX or (
            count_max is not None and count_max < count_min
        ):
            raise ConfigError(f"invalid repeat count: {found[0]}")
        return Repeat(node, count_min, count_max)

    def _group(self) -> Node | None:
        outer = self._ignores_case
        if self._next() == "?":
            found = self._match(_GROUP)
            if found is None:
                raise ConfigError("invalid or unsupported Perl syntax")
            self._ignores_case = (outer or "i" in (found["on"] or "")) and "i" not in (found["off"] or "")
            if found["end"] == ")":
                return None
        node = self.alternatives()
        if not self._take(")"):
            raise ConfigError("missing closing )")
        self._ignores_case = outer
        return node

    def _quoted(self) -> list[Node]:
        end = self._text.find("\\E", self._position)
        literal = self._text[self._position : end if end >= 0 else len(self._text)]
        self._position = end + 2 if end >= 0 else len(self._text)
        return [Characters(self._cased(frozenset(each))) for each in literal]

    def _escape(self) -> Node:
        if self._next() in _ASSERTIONS:
            self._position += 1
            return Assertion(_ASSERTIONS[self._text[self._position - 1]])
        return Characters(self._cased(self._escaped()))

    def _escaped(self) -> frozenset[str]:
        """The characters that an escape stands for."""
        if found := self._match(_CODE):
            return frozenset(chr(int(found[1] or found[2], 16)))
        if found := self._match(_PROPERTY):
            matched = _with_property(found[2] or found[3])
            return NAME_CHARACTERS - matched if (found[0][0] == "P") != bool(found[1]) else matched
        character = self._next()
        self._position += 1
        if not character:
            raise ConfigError("trailing \\ at end of expression")
        if character.lower() in _CLASSES:
            matched = _CLASSES[character.lower()]
            return matched if character.islower() else NAME_CHARACTERS - matched
        if character in _CONTROLS:
            return frozenset()
        if character.isalnum():
            raise ConfigError(f"invalid escape sequence: \\{character}")
        return frozenset(character)

    def _class(self) -> frozenset[str]:
        is_negated = self._take("^")
        members: set[str] = set()
        is_first = True
        while is_first or self._next() != "]":
            if self.is_at_end:
                raise ConfigError("missing closing ]")
            is_first = False
            members |= self._class_item()
        self._position += 1
        return NAME_CHARACTERS - members if is_negated else frozenset(members)

    def _class_item(self) -> frozenset[str]:
        if self._take("[:"):
            return self._posix_class()
        first = self._class_character()
        ends_class = self._text[self._position + 1 : self._position + 2] == "]"
        if self._next() != "-" or ends_class or len(first) != 1:
            return first
        self._position += 1
        last = self._class_character()
        if len(last) != 1 or min(last) < min(first):
            raise ConfigError("invalid character class range")
        return frozenset(each for each in NAME_CHARACTERS if min(first) <= each <= min(last))

    def _class_character(self) -> frozenset[str]:
        if self._take("\\"):
            return self._escaped()
        self._position += 1
        return frozenset(self._text[self._position - 1 : self._position])

    def _posix_class(self) -> frozenset[str]:
        end = self._text.find(":]", self._position)
        name = self._text[self._position : max(end, self._position)]
        if name.removeprefix("^") not in _POSIX:
            raise ConfigError(f"invalid character class range: [:{name}:]")
        self._position = end + 2
        matched = _POSIX[name.removeprefix("^")]
        return NAME_CHARACTERS - matched if name.startswith("^") else matched

    def _cased(self, members: frozenset[str]) -> frozenset[str]:
        return members | {each.swapcase() for each in members} if self._ignores_case else members

    def _next(self) -> str:
        return self._text[self._position : self._position + 1]

    def _take(self, token: str) -> bool:
        if not self._text.startswith(token, self._position):
            return False
        self._position += len(token)
        return True

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self._text, self._position)
        if found is not None:
            self._position = found.end()
        return found


def _with_property(name: str) -> frozenset[str]:
    """The characters of a Unicode category, such as L or Lu, or of a script."""
    if name in {"Any", "Common", "Latin"}:
        is_latin = name == "Latin"
        return frozenset(each for each in NAME_CHARACTERS if name == "Any" or (each.isalpha() == is_latin))
    if len(name) > 2 or name[0] not in "CLMNPSZ":
        raise ConfigError(f"invalid character class range: \\p{{{name}}}")
    return frozenset(each for each in NAME_CHARACTERS if unicodedata.category(each).startswith(name))
