"""A Delta table as a DataFrame: Delta's own connector does not run on this release of Spark."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema


def read(session: SparkSession, path: Path | str) -> DataFrame:
    """The rows of the table as it is now."""
    table = DeltaTable(path)
    schema = from_arrow_schema(pa.schema(table.schema().to_arrow()))
    files = [unquote(uri) for uri in table.file_uris()]
    return session.read.schema(schema).parquet(*files) if files else session.createDataFrame([], schema)
