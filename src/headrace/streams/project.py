"""`hr.project`: the state of each stream of events, by the same function that the application uses.

    accounts = hr.topic("outbox.event.account", format="bytes")

    @hr.pipeline(writes=hr.postgres_table(..., key="stream"))
    def balances(accounts):
        return hr.project(hr.events(accounts), Folding(Account), returns="cents bigint")

Live, each micro-batch gives the streams that it has changed; in batch, each stream once, as it is at the end.
A sink that keeps the last row of each key holds the same in both cases.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, DataType, IntegralType, StringType

from headrace.errors import PipelineError
from headrace.streams.buckets.operator import BUCKET_COUNT
from headrace.streams.keyed.folded_rows import DATA, EVENT_COLUMNS, SCHEMA_VERSION, TYPE, VERSION, Fold
from headrace.streams.keyed.prefold import Prefold
from headrace.streams.keyed.project import Project
from headrace.streams.keyed_state import declared_schema
from headrace.streams.stateful import Stateful
from headrace.streams.topic import METADATA_COLUMN, VALUE_COLUMN

_TITLE: Final = "hr.project"
STREAM: Final = "stream"
_HEADERS: Final = {"id": 0, "type": 1, "position": 2, "version": 3, "schema_version": 4}
"""Where a capture of an event store puts each header. Others may put them elsewhere."""


def events(rows: DataFrame) -> DataFrame:
    """The events in a topic to which an event store is captured, with columns of their own.

    `rows` are those of `hr.topic("outbox.event.account", format="bytes")`. The columns are stream, position,
    version, type, schema_version, data (JSON, as bytes) and `_kafka`.
    """
    if VALUE_COLUMN not in rows.columns or METADATA_COLUMN not in rows.columns:
        raise PipelineError(
            f'hr.events takes the rows of a topic with format="bytes"; these have {", ".join(rows.columns)}'
        )
    return rows.select(
        F.col(METADATA_COLUMN)["key"].cast("string").alias(STREAM),
        _header("position").cast("bigint").alias("position"),
        _header("version").cast("bigint").alias(VERSION),
        _header("type").alias(TYPE),
        _header("schema_version").cast("int").alias(SCHEMA_VERSION),
        F.col(VALUE_COLUMN).alias(DATA),
        METADATA_COLUMN,
    )


def project(
    rows: DataFrame,
    fold: Fold,
    *,
    returns: str | type,
    row: Callable[[Any], Mapping[str, Any]] | None = None,
    by: str = STREAM,
    name: str | None = None,
    buckets: int = BUCKET_COUNT,
) -> DataFrame:
    """The states that events make, by stream: the column `by`, `version`, and `returns`.

    `rows` have the columns of `hr.events`. `fold` is `headrace.events.folding.Folding(Account)`. `row` makes
    a dict of the columns of a state; without it, they are the state's own fields of those names.

    Events of a stream are taken by their versions: one that is seen again is left out, one that is missing
    stops the pipeline. So the answer does not depend on how often, or in which batches, events are read.
    """
    told = name or _TITLE
    _check(rows, by, told)
    returned = declared_schema(returns, f"{told}: returns")
    clash = [column for column in (by, VERSION) if column in returned.names]
    if clash:
        raise PipelineError(f"{told}: results have the column {clash[0]!r} already: leave it out of returns")
    lean = rows.select(by, *EVENT_COLUMNS, *([METADATA_COLUMN] if METADATA_COLUMN in rows.columns else []))
    lean = lean.withColumns(
        {
            VERSION: F.col(VERSION).cast("bigint"),
            SCHEMA_VERSION: F.col(SCHEMA_VERSION).cast("int"),
            DATA: F.col(DATA).cast("binary"),
        }
    )
    if not rows.isStreaming:
        lean = lean.drop(METADATA_COLUMN)
        schema = to_arrow_schema(lean.schema, timezone="UTC")
        lean = lean.mapInArrow(Prefold(by=by, fold=fold, schema=schema).run, lean.schema)
    logic = Project(by=by, key=_key(lean, by), fold=fold, returns=returned, row=row)
    operator = Stateful(title=told, rows=lean, by=(by,), event_time=None, buckets=buckets)
    return operator.run(lean, logic, operator.described(_TITLE, {}, {}))


def _header(name: str) -> Column:
    """A header as text. It is mostly where a capture puts it, which is far cheaper to look at."""
    headers = F.col(METADATA_COLUMN)["headers"]
    usual = F.get(headers, F.lit(_HEADERS[name]))
    searched = F.get(F.filter(headers, lambda header: header["key"] == name), F.lit(0))
    return F.when(usual["key"] == name, usual["value"]).otherwise(searched["value"]).cast("string")


def _key(rows: DataFrame, by: str) -> pa.DataType:
    return to_arrow_schema(rows.select(by).schema, timezone="UTC").field(by).type


def _check(rows: DataFrame, by: str, told: str) -> None:
    missing = [column for column in (by, *EVENT_COLUMNS) if column not in rows.columns]
    if missing:
        raise PipelineError(
            f"{told}: there is no column {missing[0]!r} among {', '.join(rows.columns)}: use hr.events(...), "
            f"or give {', '.join((by, *EVENT_COLUMNS))}"
        )
    kinds: dict[str, tuple[type[DataType], ...]] = {
        TYPE: (StringType,),
        VERSION: (IntegralType,),
        SCHEMA_VERSION: (IntegralType,),
        DATA: (StringType, BinaryType),
    }
    for column, kind in kinds.items():
        found = rows.schema[column].dataType
        if not isinstance(found, kind):
            raise PipelineError(
                f"{told}: the column {column} is of type {found.simpleString()}: see hr.events"
            )
