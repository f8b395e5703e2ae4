"""From the records of a capture's topic of transactions to rows: where each transaction begins and ends.

Debezium writes it where `provide.transaction.metadata=true`, as `<prefix>.transaction`. Rows have the columns

    id string                  the transaction, as the capture calls it
    status string              BEGIN or END
    event_count bigint         how many changes it has had, at its END
    data_collections           array<struct<data_collection: string, event_count: bigint>>: the same by table

and `_kafka`. What is neither a BEGIN nor an END that says what it has to say is a dead letter.

What Debezium calls a transaction of PostgreSQL is its number and a position in the log, `806:419580352`, of
which the position differs between the changes of one transaction: only the number counts.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows
from pyspark.sql.types import StructType

from headrace.streams.decode import decoded, undecodable

BEGIN: Final = "BEGIN"
END: Final = "END"
_SCHEMA: Final = (
    "id string not null, status string not null, event_count bigint, "
    "data_collections array<struct<data_collection: string, event_count: bigint>>"
)
_NUMBER_AND_POSITION: Final = r"^(\d+):\d+$"


def transaction_rows(records: DataFrame) -> DataFrame:
    """The rows of the records that tell of a transaction."""
    return decoded(records, _schema(), _Told())


def refused_transactions(records: DataFrame) -> DataFrame:
    """The records that don't, as they were, with a column `cause`."""
    return undecodable(records, _schema(), _Told())


def transaction_id(id_: Column) -> Column:
    """What all changes of a transaction have in common of what the capture calls it."""
    return F.regexp_replace(id_, _NUMBER_AND_POSITION, "$1")


def _schema() -> StructType:
    schema = StructType.fromDDL(_SCHEMA)
    assert isinstance(schema, StructType), "it is written as columns"
    return schema


class _Told:
    """An event of a transaction says what it is, and an end what it has had."""

    def is_broken(self, row: Column, written: Column) -> Column:
        """Whether it does not."""
        del written
        has_counts = row["event_count"].isNotNull() & (
            row["data_collections"].isNotNull() | (row["event_count"] == 0)
        )
        is_told = F.when(row["status"] == END, has_counts).otherwise(row["status"] == BEGIN)
        return ~F.coalesce(is_told, F.lit(False))

    @property
    def cause(self) -> str:
        """In words."""
        return f"no event of a transaction: status is {BEGIN}, or {END} with event_count and data_collections"
