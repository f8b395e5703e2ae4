"""A Delta table as a DataFrame: Delta's own connector does not run on this release of Spark.

The table's log says which files it has, and which values the columns of its partitions have in each of them;
Spark reads the files. What a file alone does not tell is refused: rows that are deleted by a list beside the
file (deletion vectors), and columns that have other names in the file (column mapping).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from functools import reduce
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import DataType, StructType

from headrace.errors import PipelineError

_MAPPING: Final = "delta.columnMapping.mode"
_DELETIONS: Final = "deletionVectors"
_HARMLESS: Final = {"columnMapping", _DELETIONS, "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"}
"""Features that change nothing about files, or that are looked for by themselves."""


def read(session: SparkSession, path: Path | str) -> DataFrame:
    """The rows of the table as it is now."""
    try:
        table = DeltaTable(path)
    except DeltaError as error:
        raise PipelineError(
            f"the Delta table {path} can't be read: {' '.join(str(error).split())}"
        ) from error
    reasons = list(_unreadable(table))
    if reasons:
        raise PipelineError(f"the Delta table {path} can't be read: {'; '.join(reasons)}")
    schema = from_arrow_schema(pa.schema(table.schema().to_arrow()))
    parts = [_rows(session, schema, values, files) for values, files in _parts(table, Path(path))]
    return reduce(DataFrame.unionAll, parts) if parts else session.createDataFrame([], schema)


def _refusal(path: Path | str, why: str) -> PipelineError:
    return PipelineError(f"the Delta table {path} can't be read: {why}")


def _unreadable(table: DeltaTable) -> Iterator[str]:
    """Why its files don't tell all, in sentences."""
    features = set(table.protocol().reader_features or ())
    if table.metadata().configuration.get(_MAPPING, "none") != "none":
        yield "its columns have other names in its files (column mapping): write it anew without"
    if _DELETIONS in features and pa.table(table.deletion_vectors().read_all()).num_rows:
        yield (
            "rows of it are deleted by lists beside its files (deletion vectors): have Delta write the files "
            "anew, with REORG TABLE ... APPLY (PURGE)"
        )
    for feature in sorted(features - _HARMLESS):
        yield f"it needs the feature {feature}, which is not known here: write it anew without"


def _parts(table: DeltaTable, path: Path) -> list[tuple[dict[str, Any], list[str]]]:
    """The files, by the values that the columns of their partitions have."""
    columns = table.metadata().partition_columns
    files = pa.table(table.get_add_actions(flatten=True))
    parts: dict[tuple[Any, ...], list[str]] = {}
    for file in files.select(["path", *(f"partition.{name}" for name in columns)]).to_pylist():
        name, *values = file.values()
        # Below the table's directory, or absolute in a clone of another; written as in an address.
        place = path.absolute() / unquote(name.removeprefix("file://"))
        parts.setdefault(tuple(values), []).append(str(place))
    return [(dict(zip(columns, values, strict=True)), found) for values, found in parts.items()]


def _rows(
    session: SparkSession, schema: StructType, values: dict[str, Any], files: Sequence[str]
) -> DataFrame:
    inside = StructType([field for field in schema.fields if field.name not in values])
    # Else Spark would look for partitions in the names of directories.
    rows = session.read.option("recursiveFileLookup", "true").schema(inside).parquet(*files)
    return rows.select(
        *(
            _literal(values[field.name], field.dataType).alias(field.name)
            if field.name in values
            else rows[f"`{field.name}`"]
            for field in schema.fields
        )
    )


def _literal(value: Any, kind: DataType) -> Column:
    # Times as text: a literal would be taken for one of this machine's time zone.
    return F.lit(value.isoformat() if isinstance(value, date) else value).cast(kind)
