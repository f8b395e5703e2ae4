"""The field of a hash that a key has: its text. No I/O.

    key="id"                 42        HGET orders 42
    key=["order", "line"]    42, 1     HGET lines 42:1
                             a:b, c\\d  HGET lines a\\:b:c\\d

Values of several columns are joined by colons; a colon or a backslash within one has a backslash in front.
So no two keys have the same field. Numbers, dates and times are written as Spark's `string(...)` writes them,
in UTC; binary values in base64.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows
from pyspark.sql.types import BinaryType

SEPARATOR: Final = ":"
_ESCAPE: Final = "\\"


def field_of(texts: Sequence[str]) -> str:
    """The field of the key whose values have these texts."""
    if len(texts) == 1:
        return texts[0]
    return SEPARATOR.join(reduce(_escaped, (_ESCAPE, SEPARATOR), text) for text in texts)


def field_column(rows: DataFrame, key: Sequence[str]) -> Column:
    """The same for all rows, on Spark; null where one of the key's values is."""
    texts = [_text(rows, name) for name in key]
    if len(texts) == 1:
        return texts[0]
    parts = [reduce(_escaped_column, (_ESCAPE, SEPARATOR), text) for text in texts]
    joined = [part for text in parts for part in (F.lit(SEPARATOR), text)]
    return F.concat(*joined[1:])


def _escaped(text: str, character: str) -> str:
    return text.replace(character, _ESCAPE + character)


def _escaped_column(text: Column, character: str) -> Column:
    return F.replace(text, F.lit(character), F.lit(_ESCAPE + character))


def _text(rows: DataFrame, name: str) -> Column:
    column = rows[f"`{name}`"]
    if isinstance(rows.schema[name].dataType, BinaryType):
        # Spark breaks base64 into lines.
        return F.translate(F.base64(column), "\r\n", "")
    return column.cast("string")
