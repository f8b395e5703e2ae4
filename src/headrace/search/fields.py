"""What an index knows of its rows' columns, and by which fields they are found. No I/O.

A document has these fields beside one for each column that is searched:

| field | | |
|---|---|---|
| `_key` | text of the key (see keys.py) | found whole; what is deleted is deleted by it |
| `_row` | the row as JSON | stored, not searched: what readers get |
| `_part` | a number below 1,024 that the key decides | so that all rows can be read in pieces |
| `_ledger` | in documents that are no rows | which batch was written last, and by which run |

A column is searched by its kind. Arrays have a value for each element.

| kind | columns | found |
|---|---|---|
| `words` | text that is searched word by word | by words, phrases, prefixes |
| `whole` | other text | by the whole value |
| `integer`, `float`, `boolean` | numbers, decimals as floats | by value and range |
| `moment` | dates and times | by range, to the second |
| `json` | structs, maps, variants | by a path: `attributes.color:red` |
| `none` | binary values, arrays of arrays | not at all |
"""

from __future__ import annotations

import json
import zlib
from dataclasses import asdict, dataclass
from typing import Final, Literal

KEY: Final = "_key"
ROW: Final = "_row"
PART: Final = "_part"
LEDGER: Final = "_ledger"
RESERVED: Final = (KEY, ROW, PART, LEDGER)

PARTS: Final = 1024
ALL_LEDGERS: Final = "ledger"
"""What each document that is no row has in `_ledger`."""

Kind = Literal["words", "whole", "integer", "float", "boolean", "moment", "json", "none"]
_VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of the rows."""

    name: str
    type: str
    """Spark's, in its own words."""
    kind: Kind
    is_many: bool = False
    """Whether a row has several values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """All columns of the rows, in their order, and those that tell them apart."""

    key: tuple[str, ...]
    columns: tuple[Column, ...]

    @property
    def searched(self) -> tuple[Column, ...]:
        """Those that have a field."""
        return tuple(column for column in self.columns if column.kind != "none")

    @property
    def text_names(self) -> list[str]:
        """Where words are looked for if nothing is said: in words, or else in whole values."""
        words = [column.name for column in self.columns if column.kind == "words"]
        return words or [column.name for column in self.columns if column.kind == "whole"]

    def to_json(self) -> str:
        """As it is kept."""
        return json.dumps({"version": _VERSION, **asdict(self)}, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Columns:
        """As it was kept; raises ValueError for what is no such thing."""
        try:
            kept = json.loads(text)
            if kept["version"] != _VERSION:
                raise ValueError(f"version {kept['version']} is not known here")
            columns = tuple(Column(**column) for column in kept["columns"])
            return cls(key=tuple(kept["key"]), columns=columns)
        except (KeyError, TypeError) as error:
            raise ValueError(f"{type(error).__name__}: {error}") from error

    def differences(self, other: Columns) -> list[str]:
        """What is different in the other, in words."""
        ours = {column.name: column for column in self.columns}
        theirs = {column.name: column for column in other.columns}
        reasons = [f"{name} is new" for name in theirs if name not in ours]
        reasons += [f"{name} is gone" for name in ours if name not in theirs]
        reasons += [
            f"{name} was {_told(ours[name])} and is {_told(theirs[name])}"
            for name in ours
            if name in theirs and ours[name] != theirs[name]
        ]
        if self.key != other.key:
            reasons.append(f"the key was {', '.join(self.key)} and is {', '.join(other.key)}")
        return reasons


def part_of(key: str) -> int:
    """In which part a row is."""
    return zlib.crc32(key.encode()) % PARTS


def ledger_of(pipeline: str) -> str:
    """What the ledger of a pipeline has in `_ledger`, beside what all have."""
    return f"ledger of {pipeline}"


def _told(column: Column) -> str:
    return f"{column.type}, searched as {column.kind}"
