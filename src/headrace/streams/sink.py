"""From a pipeline's rows to records: the columns as one JSON object, one of them as the key."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows
from pyspark.sql.types import BinaryType

from headrace.errors import PipelineError
from headrace.streams.topic import METADATA_COLUMN, Topic

_JSON_OPTIONS: Final = {
    # A null is written, so that each record has the same fields.
    "ignoreNullFields": "false",
    # Spark's own default cuts microseconds off.
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


def to_records(rows: DataFrame, topic: Topic, *, pipeline: str) -> DataFrame:
    """The rows as `key` and `value` of records for the topic. `_kafka` is left out."""
    names = [name for name in rows.columns if name != METADATA_COLUMN]
    if not names:
        raise PipelineError(f"pipeline {pipeline} returns no columns: there is nothing to write")
    if topic.key is not None and topic.key not in names:
        raise PipelineError(
            f"pipeline {pipeline} writes topic {topic.name} with the key {topic.key!r}, which is none of the "
            f"columns that it returns ({', '.join(names)}): return the column, or name another key"
        )
    value = F.to_json(F.struct(*(rows[f"`{name}`"] for name in names)), _JSON_OPTIONS)
    return rows.select(_key(rows, topic).alias("key"), value.alias("value"))


def _key(rows: DataFrame, topic: Topic) -> Column:
    if topic.key is None:
        return F.lit(None).cast("binary")
    column = rows[f"`{topic.key}`"]
    is_binary = isinstance(rows.schema[topic.key].dataType, BinaryType)
    return column if is_binary else column.cast("string").cast("binary")
