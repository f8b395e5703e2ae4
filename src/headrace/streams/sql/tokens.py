"""SQL as tokens: enough of Spark's lexical rules to find where statements and their clauses begin and end.

| kind | |
|---|---|
| `word` | a keyword or a name: `select`, `orders`, `tx_id` |
| `quoted` | a name in backticks, in which a backtick is doubled |
| `string` | text in single or double quotes, with backslashes; after an `r`, without |
| `number` | `12`, `1.5`, `1e9` |
| `symbol` | all else, one character each |

White space and comments (`--` to the end of the line, and nested `/* */`) lie between tokens.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from headrace.errors import SqlError

Kind = Literal["word", "quoted", "string", "number", "symbol"]

_SPACE: Final = re.compile(r"(?:\s+|--[^\n]*)+")
_WORD: Final = re.compile(r"[^\W\d]\w*|\d\w*[^\W\d]\w*", re.ASCII)
_NUMBER: Final = re.compile(r"(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?")
_QUOTED: Final = re.compile(r"`(?:[^`]|``)*`")
_STRING: Final = re.compile(r"""'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*\"""", re.DOTALL)
_RAW_STRING: Final = re.compile(r"""[rR](?:'[^']*'|"[^"]*")""")
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "b": "\b"}
_KINDS: Final[tuple[tuple[Kind, re.Pattern[str]], ...]] = (
    ("string", _RAW_STRING),
    ("string", _STRING),
    ("quoted", _QUOTED),
    ("number", _NUMBER),
    ("word", _WORD),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A part of a text, and where it is."""

    kind: Kind
    text: str
    start: int

    @property
    def end(self) -> int:
        """Where the next one can begin."""
        return self.start + len(self.text)

    def is_word(self, *words: str) -> bool:
        """Whether it is one of these keywords, which are given in capitals."""
        return self.kind == "word" and self.text.upper() in words

    def is_symbol(self, symbol: str) -> bool:
        """Whether it is this character."""
        return self.kind == "symbol" and self.text == symbol

    @property
    def value(self) -> str:
        """What a name or a string stands for."""
        if self.kind == "quoted":
            return self.text[1:-1].replace("``", "`")
        if self.kind != "string":
            return self.text
        if self.text[0] in "rR":
            return self.text[2:-1]
        mark = self.text[0]
        found = re.sub(
            rf"\\(.)|{mark}{mark}",
            lambda match: mark if match[1] is None else _ESCAPES.get(match[1], match[1]),
            self.text[1:-1],
            flags=re.DOTALL,
        )
        return str(found)


def tokenize(text: str) -> list[Token]:
    """All tokens of the text."""
    tokens: list[Token] = []
    position = _skip(text, 0)
    while position < len(text):
        tokens.append(_token(text, position))
        position = _skip(text, tokens[-1].end)
    return tokens


def name_text(name: str) -> str:
    """A name as it is always understood: in backticks."""
    return f"`{name.replace('`', '``')}`"


def string_text(value: str) -> str:
    """A string as it is always understood: in single quotes."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    for letter, character in _ESCAPES.items():
        escaped = escaped.replace(character, f"\\{letter}")
    return f"'{escaped}'"


def place(text: str, position: int) -> str:
    """Where in the text that is, in words: `line 2, column 5`."""
    before = text[:position]
    return f"line {before.count(chr(10)) + 1}, column {position - (before.rfind(chr(10)) + 1) + 1}"


def normal_text(tokens: list[Token]) -> str:
    """The same for texts that differ only in space, comments and capitals of words."""
    return " ".join(token.text.lower() if token.kind == "word" else token.text for token in tokens)


def at_top(tokens: Sequence[Token]) -> list[Token]:
    """Those that are in no parentheses or brackets."""
    depth, found = 0, []
    for token in tokens:
        depth -= token.is_symbol(")") + token.is_symbol("]")
        if depth == 0:
            found.append(token)
        depth += token.is_symbol("(") + token.is_symbol("[")
    return found


def _token(text: str, position: int) -> Token:
    # `1abc` is a word, `1e9` a number.
    found = [
        (kind, match[0]) for kind, pattern in _KINDS if (match := pattern.match(text, position)) is not None
    ]
    if found:
        kind, longest = max(found, key=lambda pair: len(pair[1]))
        return Token(kind=kind, text=longest, start=position)
    if text[position] in "'\"`":
        raise SqlError(f"{place(text, position)}: what begins with {text[position]} here has no end")
    return Token(kind="symbol", text=text[position], start=position)


def _skip(text: str, position: int) -> int:
    """Behind white space and comments."""
    while True:
        if (space := _SPACE.match(text, position)) is not None:
            position = space.end()
        elif text.startswith("/*", position):
            position = _behind_comment(text, position)
        else:
            return position


def _behind_comment(text: str, start: int) -> int:
    depth, position = 0, start
    while True:
        opening, closing = text.find("/*", position), text.find("*/", position)
        if closing < 0:
            raise SqlError(f"{place(text, start)}: the comment that begins here has no end")
        if 0 <= opening < closing:
            depth, position = depth + 1, opening + 2
        else:
            depth, position = depth - 1, closing + 2
        if depth == 0:
            return position
