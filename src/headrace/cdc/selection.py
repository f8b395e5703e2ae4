"""Which tables and columns are captured, and which columns' values nobody may read.

Patterns name tables as `schema.table` and columns as `schema.table.column`; `*` stands for any characters
and `?` for one. What is excluded is excluded though it is also included. All of it is applied before
anything is published, to rows before and after a change alike, and to keys:

- A column that is left out is in no row. If it is part of the key, the key still has it, as rows could not be
  told apart without it: hash it, if nobody may know it.
- A mask puts the same text in place of every value. A key can't be masked, since all rows would become one.
- A hash puts HMAC-SHA-256 of the value's text in place of it, in hexadecimal. Equal values have equal
  hashes in all columns and tables, so that keys stay keys and joins stay possible. Without the secret
  nobody can try values out.

Null stays null.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final

from headrace.cdc.values.scalars import Converter, text
from headrace.errors import ConfigError

HASH_SECRET_BYTES_MIN: Final = 16
_WILD: Final = set("*?[")


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What is captured, and how much of it may be read."""

    include_tables: tuple[str, ...] = ()
    """Only these tables are captured; all of the publication, if empty."""
    exclude_tables: tuple[str, ...] = ()
    """These tables are not captured."""
    include_columns: tuple[str, ...] = ()
    """Of tables that a pattern here is about, only these columns are captured."""
    exclude_columns: tuple[str, ...] = ()
    """These columns are not captured."""
    mask_columns: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Columns, and the text that stands in place of their values."""
    hash_columns: tuple[str, ...] = ()
    """Columns whose values are hashed."""
    hash_secret: bytes = field(default=b"", repr=False)
    """What hashes are made with. Keep it: another secret makes other hashes, and other keys."""

    def __post_init__(self) -> None:
        for pattern in (*self.include_tables, *self.exclude_tables):
            _check(pattern, dots=1, like="public.orders or public.*")
        columns = (*self.include_columns, *self.exclude_columns, *self.mask_columns, *self.hash_columns)
        for pattern in columns:
            _check(pattern, dots=2, like="public.orders.email or *.*.email")
        if self.hash_columns and len(self.hash_secret) < HASH_SECRET_BYTES_MIN:
            raise ConfigError(
                f"hash_columns needs a hash_secret of at least {HASH_SECRET_BYTES_MIN} bytes, or hashes "
                f"could be guessed; this one has {len(self.hash_secret)}"
            )

    def unmatched(
        self, tables: Iterable[tuple[str, str]], columns: Iterable[tuple[str, str, str]]
    ) -> list[str]:
        """What matches none of these tables and columns: mistyped, most likely, and then not hidden.

        A pattern of tables to capture may wait for its first table; a table's own name may not.
        """
        table_names, column_names = [".".join(each) for each in tables], [".".join(each) for each in columns]
        named = [each for each in self.include_tables if not _WILD & set(each)]
        of_columns = (*self.include_columns, *self.exclude_columns, *self.mask_columns, *self.hash_columns)
        return [
            *(each for each in (*named, *self.exclude_tables) if not _names(table_names, each)),
            *(each for each in of_columns if not _names(column_names, each)),
        ]

    def takes_table(self, schema: str, table: str) -> bool:
        """Whether changes of the table are captured."""
        name = f"{schema}.{table}"
        is_included = not self.include_tables or _matches(name, self.include_tables)
        return is_included and not _matches(name, self.exclude_tables)

    def takes_column(self, schema: str, table: str, column: str) -> bool:
        """Whether rows of the table have the column."""
        name = f"{schema}.{table}.{column}"
        if _matches(name, self.exclude_columns):
            return False
        concerned = [
            each for each in self.include_columns if fnmatchcase(f"{schema}.{table}", each.rpartition(".")[0])
        ]
        return not concerned or _matches(name, concerned)

    def cover_of(self, schema: str, table: str, column: str, *, is_key: bool) -> Cover | None:
        """What stands in place of the column's values; None if they may be read."""
        name = f"{schema}.{table}.{column}"
        if _matches(name, self.hash_columns):
            return Cover(converter=_hash(self.hash_secret), needs_value=True)
        masks = [mask for pattern, mask in self.mask_columns.items() if fnmatchcase(name, pattern)]
        if not masks:
            return None
        if is_key:
            raise ConfigError(
                f"{name} is part of the key and can't be masked, or all rows would become one: put it into "
                "hash_columns instead"
            )
        return Cover(converter=_mask(masks[0]), needs_value=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cover:
    """What stands in place of a column's values."""

    converter: Converter
    needs_value: bool
    """Whether it depends on the value."""


def _check(pattern: str, *, dots: int, like: str) -> None:
    if pattern.count(".") < dots or not all(pattern.split(".")):
        raise ConfigError(f"{pattern!r} names nothing that is captured: write it like {like}")


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _names(names: Iterable[str], pattern: str) -> bool:
    return any(fnmatchcase(name, pattern) for name in names)


def _mask(mask: str) -> Converter:
    written = text(mask.encode())

    def convert(value: bytes) -> bytes:
        del value
        return written

    return convert


def _hash(secret: bytes) -> Converter:
    keyed = hmac.new(secret, digestmod=hashlib.sha256)

    def convert(value: bytes) -> bytes:
        this = keyed.copy()
        this.update(value)
        return b'"%b"' % this.hexdigest().encode()

    return convert
