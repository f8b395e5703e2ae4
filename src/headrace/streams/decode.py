"""From a record's bytes to a row of a schema's columns, or to the cause why it is none.

A value decodes when it is UTF-8, is exactly one JSON object, each of its fields fits its column, every
column that the schema calls `not null` has a value, at least one column has a value, and no number is too
large for its column. Anything else is a dead letter. The rules are Spark's `from_json` made strict:

- It stops reading at the end of the first object. The text's last brace is therefore replaced by
  `,"<end>":true}`: only if the first object has that field does the text end where this object does. The name
  is drawn anew each time, so that no text can have it. The empty object can't be told that way; it has none
  of the columns, and is refused anyway.
- It takes lists of objects, too, and texts with a byte order mark; here a text begins with a brace.
- It leaves null what does not fit, and says so only in a column of its own, asked for here as `<corrupt>`.
- It takes single quotes, and NaN; both are switched off.
- It reads 1e400 as infinity; refused here for columns of the top level.
- It puts U+FFFD in the place of what is not UTF-8. A text that has one is looked at byte by byte, which would
  take a tenth of the time if it were done to each; where columns are nested, it is done to each.

Spark's leniency is kept where nothing is lost: a number in a string column becomes its text, a whole
number in a timestamp column is seconds since 1970, fields that the schema does not name are ignored
whatever their bytes are, and of two fields with one name the last holds. An unpaired surrogate escape becomes
`?`.

`decoded` and `undecodable` are complements: each record is in exactly one of them.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_
from typing import Final, Protocol

from pyspark.errors import ParseException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DoubleType,
    FloatType,
    NumericType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from headrace.errors import PipelineError
from headrace.streams.failure import first_line
from headrace.streams.time.policies import declared_column
from headrace.streams.topic import CHANGE_COLUMN, METADATA_COLUMN, OF_CHANGES, Topic

_FLAT: Final = (StringType, NumericType, BooleanType, TimestampType, TimestampNTZType)
"""Kinds of columns that hold no text, or are one."""
_REPLACED: Final = "\N{REPLACEMENT CHARACTER}"
_WHITE_SPACE: Final = " \t\n\r"
"""What JSON takes for it."""
TOMBSTONE_COLUMN: Final = "_is_tombstone"
_METADATA_FIELDS: Final = ("key", "topic", "partition", "offset", "timestamp", "headers")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seal:
    """The names of what is asked for beside the columns. Texts are parsed into the column `_opened`."""

    end: str
    corrupt: str

    def open(self, schema: StructType) -> Column:
        """Parse the records' values."""
        # What is required is judged afterwards: the parser only has to leave out what is not there.
        optional = [StructField(field.name, field.dataType) for field in schema.fields]
        parsed = StructType(
            [*optional, StructField(self.end, BooleanType()), StructField(self.corrupt, StringType())]
        )
        options = {
            "columnNameOfCorruptRecord": self.corrupt,
            "allowNonNumericNumbers": "false",
            "allowSingleQuotes": "false",
        }
        return F.from_json(self._sealed(), parsed, options)

    def _sealed(self) -> Column:
        """The text with the seal at its end; null where it is not in braces."""
        trimmed = F.btrim(_text(), F.lit(_WHITE_SPACE))
        # To trim takes as long as all else here, and hardly any text needs it.
        return F.when(_is_in_braces(_text()), self._seal(F.col("value"))).when(
            _is_in_braces(trimmed), self._seal(trimmed.cast("binary"))
        )

    def _seal(self, value: Column) -> Column:
        # As bytes: to find the last character of a text, all would be counted.
        head = F.substring(value, F.lit(1), F.octet_length(value) - 1)
        return F.concat(head, F.lit(f',"{self.end}":true}}'.encode())).cast("string")

    @property
    def row(self) -> Column:
        """What became of the text."""
        return F.col("_opened")

    @property
    def is_intact(self) -> Column:
        """Whether the text was one JSON object. False or null when it was not."""
        return F.col("_opened")[self.end]

    @property
    def is_corrupt(self) -> Column:
        """Whether something in the text was malformed, or did not fit its column."""
        return F.col("_opened")[self.corrupt].isNotNull()


def _is_in_braces(text: Column) -> Column:
    return text.startswith("{") & text.endswith("}")


def _text() -> Column:
    return F.col("value").cast("string")


def parse_schema(topic: Topic) -> StructType:
    """The topic's schema as Spark's type, checked. Needs a running session."""
    if topic.schema is None:
        raise PipelineError(
            f"topic {topic.name} can't be read without a schema: describe it as "
            f'hr.topic("{topic.name}", schema="column type, ...")'
        )
    try:
        schema = StructType.fromDDL(topic.schema)
    except ParseException as error:
        reason = first_line(error)
        raise PipelineError(
            f"the schema of topic {topic.name} can't be read ({reason}): write it as column type, "
            f"column type, ...; it is {topic.schema!r}"
        ) from error
    if not isinstance(schema, StructType):
        raise PipelineError(f"the schema of topic {topic.name} is a single type: write column type, ...")
    for reserved in (METADATA_COLUMN, *((CHANGE_COLUMN,) if topic.format in OF_CHANGES else ())):
        if reserved in schema.names:
            raise PipelineError(f"topic {topic.name}: {reserved} is reserved; rename the column")
    _check_event_time(topic, schema)
    return schema


def _check_event_time(topic: Topic, schema: StructType) -> None:
    watermark = None if isinstance(topic.watermark, str) else topic.watermark
    for what, column in {"event_time": topic.event_time, "watermark": declared_column(watermark)}.items():
        if column is None:
            continue
        if column not in schema.names:
            raise PipelineError(
                f"topic {topic.name}: {what} is {column!r}, which is none of the schema's columns "
                f"({', '.join(schema.names)})"
            )
        kind = schema[column].dataType.typeName()
        if kind not in {"timestamp", "timestamp_ntz"}:
            raise PipelineError(f"topic {topic.name}: {what} {column} is {kind}; use a timestamp")


def metadata() -> Column:
    """Where a record came from, as the column `_kafka`."""
    return F.struct(*_METADATA_FIELDS).alias(METADATA_COLUMN)


class Rule(Protocol):
    """What a row must keep to, beside its schema."""

    def is_broken(self, row: Column, written: Column) -> Column:
        """Whether the row does not, of a record that was written at this moment. Never null."""

    @property
    def cause(self) -> str:
        """Why that is so, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ahead:
    """How far the event time of a record may lie behind the moment at which the record was written."""

    event_time: str
    max_us: int

    def is_broken(self, row: Column, written: Column) -> Column:
        """Whether the row's event has not happened yet. Never null."""
        # Not by adding to the time of writing: the year 294,000 has no tomorrow.
        ahead_us = F.unix_micros(row[self.event_time].cast("timestamp")) - F.unix_micros(written)
        return F.coalesce(ahead_us > self.max_us, F.lit(False))

    @property
    def cause(self) -> str:
        """In words."""
        return f"{self.event_time} lies more than {self.max_us / 1e6:g} s after the record was written"


def decoded(
    records: DataFrame, schema: StructType, rule: Rule | None = None, *, keep_tombstones: bool = False
) -> DataFrame:
    """The rows of the records that decode: the schema's columns and `_kafka`.

    Records without a value become rows of nulls where they are kept, and `_is_tombstone` tells them apart.
    """
    seal = _new_seal()
    opened = records.select("value", metadata(), seal.open(schema).alias("_opened"))
    fits = _fits(seal, schema)
    if rule is not None:
        fits &= ~rule.is_broken(seal.row, F.col(METADATA_COLUMN)["timestamp"])
    if keep_tombstones:
        fits |= F.col("value").isNull()
    rows = opened.select(_only_if(fits, seal.row).alias("_row"), METADATA_COLUMN)
    columns = [F.col("_row")[name].alias(name) for name in schema.names]
    if keep_tombstones:
        columns.append(F.col("_row").isNull().alias(TOMBSTONE_COLUMN))
    return rows.select(*columns, METADATA_COLUMN)


def undecodable(records: DataFrame, schema: StructType, rule: Rule | None = None) -> DataFrame:
    """The records that don't decode, as they were, with a column `cause`."""
    seal = _new_seal()
    opened = records.withColumn("_opened", seal.open(schema))
    fits, cause = _fits(seal, schema), _cause(seal, schema)
    if rule is not None:
        is_broken = rule.is_broken(seal.row, F.col("timestamp"))
        fits, cause = fits & ~is_broken, F.when(fits, rule.cause).otherwise(cause)
    return opened.select(*records.columns, _only_if(~fits, cause).alias("cause"))


def _only_if(condition: Column, value: Column) -> Column:
    """The value, for the rows that fulfil the condition; the others are left out.

    A plain `where` would be moved in front of the parsing and parse each text again, once for each field
    that the condition looks at.
    """
    return F.explode(F.when(condition, F.array(value)))


def _new_seal() -> _Seal:
    token = secrets.token_hex(8)
    return _Seal(end=f"end{token}", corrupt=f"corrupt{token}")


def _fits(seal: _Seal, schema: StructType) -> Column:
    """True or false for each record, never null."""
    row = seal.row
    conditions = [
        _is_utf8(row, schema),
        seal.is_intact,
        ~seal.is_corrupt,
        *(~absent for absent in _absences(row, schema).values()),
        reduce(or_, (row[name].isNotNull() for name in schema.names)),
        *(_is_finite(row[name]) for name in _fractional(schema)),
    ]
    return F.coalesce(reduce(and_, conditions), F.lit(False))


def _is_utf8(row: Column, schema: StructType) -> Column:
    """Whether what was read of the text is UTF-8."""
    is_valid = F.is_valid_utf8(_text())
    if not all(isinstance(field.dataType, _FLAT) for field in schema.fields):
        return is_valid
    texts = [field.name for field in schema.fields if isinstance(field.dataType, StringType)]
    is_clean = [F.coalesce(~row[name].contains(_REPLACED), F.lit(True)) for name in texts]
    return reduce(and_, is_clean, F.lit(True)) | is_valid


def _cause(seal: _Seal, schema: StructType) -> Column:
    """In words, what is wrong with a record that does not fit."""
    row = seal.row
    parsed = F.try_parse_json(_text())
    is_object = F.schema_of_variant(parsed).startswith("OBJECT")
    is_empty = _text().rlike(r"^[ \t\n\r]*\{[ \t\n\r]*\}[ \t\n\r]*$")
    misfits = _columns_where({f: _is_misfit(parsed, row, f.name) for f in schema.fields})
    absent = F.concat_ws(", ", *(F.when(is_so, path) for path, is_so in _absences(row, schema).items()))
    infinite = _columns_where({schema[name]: ~_is_finite(row[name]) for name in _fractional(schema)})
    return (
        F.when(F.col("value").isNull(), "the value is null (a tombstone)")
        .when(~F.is_valid_utf8(_text()), "the value is not UTF-8")
        .when(_text().rlike(r"^\s*$"), "the value is empty")
        .when(parsed.isNotNull() & ~is_object, "the value is JSON but not an object")
        .when(~is_empty & ~F.coalesce(seal.is_intact, F.lit(False)), "the value is not one JSON text")
        .when(misfits != "", F.concat(F.lit("does not fit its column: "), misfits))
        .when(~is_empty & seal.is_corrupt, "a value does not fit its column")
        .when(absent != "", F.concat(F.lit("a required column has no value: "), absent))
        .when(infinite != "", F.concat(F.lit("too large a number: "), infinite))
        .otherwise(f"none of the schema's columns has a value: {', '.join(schema.names)}")
    )


def _columns_where(conditions: dict[StructField, Column]) -> Column:
    """The columns, each with its type, whose condition holds: `amount (double), at (timestamp)`."""
    named = [F.when(is_so, _shown(field.name, field)) for field, is_so in conditions.items()]
    return F.concat_ws(", ", *named) if named else F.lit("")


def _shown(path: str, field: StructField) -> str:
    return f"{path} ({field.dataType.simpleString()})"


def _is_misfit(parsed: Column, row: Column, name: str) -> Column:
    """Whether the record has a value for the column that did not survive being read as its type."""
    given = F.try_variant_get(parsed, f"$['{name}']", "variant")
    return row[name].isNull() & given.isNotNull() & ~F.is_variant_null(given)


def _is_finite(number: Column) -> Column:
    return F.coalesce(F.abs(number) < float("inf"), F.lit(True))


def _absences(row: Column, schema: StructType, path: str = "") -> dict[str, Column]:
    """Of each column that is required, by its path and type: whether it has no value. Never null.

    A column of a struct, or of the structs of a list, is required where there is such a struct.
    """
    absences: dict[str, Column] = {}
    for field in schema.fields:
        value, place, kind = row[field.name], path + field.name, field.dataType
        if not field.nullable:
            absences[_shown(place, field)] = value.isNull()
        if isinstance(kind, StructType):
            inner = _absences(value, kind, f"{place}.")
            absences |= {name: value.isNotNull() & absent for name, absent in inner.items()}
        elif isinstance(kind, ArrayType) and isinstance(kind.elementType, StructType):
            absences |= _absences_in_list(value, kind.elementType, place)
    return absences


def _absences_in_list(values: Column, schema: StructType, path: str) -> dict[str, Column]:
    def one_has_none(name: str) -> Column:
        found = F.exists(values, lambda one: one.isNotNull() & _absences(one, schema, f"{path}[].")[name])
        return F.coalesce(found, F.lit(False))

    # The names are those of any row: what is asked of each member is asked anew.
    return {name: one_has_none(name) for name in _absences(F.col("_opened"), schema, f"{path}[].")}


def _fractional(schema: StructType) -> list[str]:
    return [field.name for field in schema.fields if isinstance(field.dataType, DoubleType | FloatType)]
