"""`hr.aligned`: changes of tables, held back until the whole transaction that they are part of is there.

    orders, products = hr.aligned(orders, products, transactions=transactions)

Each table has an operator of its own, which is given the changes of that table, of each change of the others
where it belongs, and the ends of transactions. All of them see the same, so they let the same transactions go
in the same micro-batch.

Which tables a transaction has changed is told by the names of the database, `public.orders`. The topic of a
table has that name behind a prefix, with `_` for what no topic's name has: `shop.public.orders`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

from headrace.errors import PipelineError
from headrace.streams.change_formats import FORMAT_METADATA, TOPICS_METADATA
from headrace.streams.changelog.transactions import (
    CAME,
    CHANGE,
    END,
    END_COUNT,
    HELD_MAX,
    MADE,
    ORDER,
    OTHER,
    ROLE,
    TRANSACTION,
    AlignTransactions,
)
from headrace.streams.changes import refuse_clash
from headrace.streams.recognise import ARGUMENT_PREFIX
from headrace.streams.stateful import Stateful
from headrace.streams.time.durations import Duration, duration_us
from headrace.streams.topic import CHANGE_COLUMN, METADATA_COLUMN
from headrace.streams.transaction_format import END as ENDED_STATUS
from headrace.streams.transaction_format import transaction_id

PATIENCE: Final = "5 minutes"
"""How long a change is held, where nothing is said."""

_TITLE: Final = "hr.aligned"
_ALL: Final = f"{ARGUMENT_PREFIX}all"
"""All rows belong together: the order is that of all transactions."""
_TRANSACTION_COLUMNS: Final = ("id", "status", "event_count", "data_collections")
_NOT_IN_NAMES: Final = r"[^A-Za-z0-9._-]"


def aligned(
    *tables: DataFrame,
    transactions: DataFrame,
    patience: Duration = PATIENCE,
    held_max: int = HELD_MAX,
) -> tuple[DataFrame, ...]:
    """The changes of tables, each when the whole transaction that it is part of has arrived.

    `tables` are the rows of topics that change capture writes (`hr.topic(..., format="debezium")`), as they
    are read; `transactions` those of the capture's topic of transactions
    (`format="debezium-transactions"`). The tables come back in the same order, for hr.changes or hr.history.
    Transactions come one after the other, in the order in which they ended, and all changes of one in the
    same micro-batch, of whichever table they are.

    A transaction of which something never comes is let go as it is, once a change of it has waited for
    `patience`, or more than `held_max` changes wait; what is let go so is counted as `unaligned`. Ends of
    which no change comes are given up in the same way, and counted as `ends_given_up`. Time in which the
    pipeline does not run counts.
    """
    topics = _topics(tables)
    _check(tables, transactions)
    if held_max < 1:
        raise PipelineError(f"{_TITLE}: held_max is {held_max}; let at least one change be held")
    logic = AlignTransactions(
        patience_us=duration_us(patience, f"{_TITLE}: patience"), apart=(_ALL,), held_max=held_max
    )
    return tuple(
        _aligned(number, tables, _ends(transactions, topics), logic) for number in range(len(tables))
    )


def _aligned(
    number: int, tables: Sequence[DataFrame], ends: DataFrame, logic: AlignTransactions
) -> DataFrame:
    """One of the tables."""
    table = tables[number]
    rows = table.withColumns(_told(CHANGE))
    for other in (each for place, each in enumerate(tables) if place != number):
        rows = rows.unionByName(
            other.withColumns(_told(OTHER)).select(*MADE, METADATA_COLUMN), allowMissingColumns=True
        )
    rows = rows.unionByName(ends, allowMissingColumns=True).withColumn(_ALL, F.lit(0))
    operator = Stateful(title=_TITLE, rows=rows, by=(_ALL,), event_time=None, buckets=1)
    kept = {
        field.name: f"{field.name}: {field.dataType.simpleString()}"
        for field in table.schema.fields
        if field.name not in {CHANGE_COLUMN, METADATA_COLUMN}
    }
    result = operator.run(rows, logic, operator.described("aligned transactions", kept, {}))
    return result.withMetadata(CHANGE_COLUMN, table.schema[CHANGE_COLUMN].metadata)


def _told(role: str) -> dict[str, Column]:
    change = F.col(CHANGE_COLUMN)
    return {
        TRANSACTION: change["transaction"],
        ORDER: change["transaction_order"],
        ROLE: F.lit(role),
        END_COUNT: F.lit(None).cast("bigint"),
        CAME: F.current_timestamp(),
    }


def _ends(transactions: DataFrame, topics: Sequence[str]) -> DataFrame:
    """Where transactions end, with how many changes each has had of the tables that have these topics."""
    names = sorted({suffix for topic in topics for suffix in _suffixes(topic)})

    def count(collection: Column) -> Column:
        name = F.regexp_replace(collection["data_collection"], _NOT_IN_NAMES, "_")
        return F.when(name.isin(names), F.coalesce(collection["event_count"], F.lit(0))).otherwise(0)

    collections = F.coalesce(F.col("data_collections"), F.array())
    total = F.aggregate(collections, F.lit(0).cast("bigint"), lambda sum_, each: sum_ + count(each))
    return transactions.where(F.col("status") == ENDED_STATUS).select(
        transaction_id(F.col("id")).alias(TRANSACTION),
        F.lit(None).cast("bigint").alias(ORDER),
        F.lit(END).alias(ROLE),
        total.alias(END_COUNT),
        F.current_timestamp().alias(CAME),
        METADATA_COLUMN,
    )


def _suffixes(topic: str) -> list[str]:
    """What a table may be called whose topic has this name: `shop.public.orders`, `public.orders`, ..."""
    parts = topic.split(".")
    return [".".join(parts[start:]) for start in range(len(parts))]


def _topics(tables: Sequence[DataFrame]) -> list[str]:
    """The topics of tables; raise where they are none that can be aligned."""
    if not tables:
        raise PipelineError(f"{_TITLE} was given no table: hr.aligned(orders, products, transactions=...)")
    found: list[str] = []
    for table in tables:
        noted = table.schema[CHANGE_COLUMN].metadata if CHANGE_COLUMN in table.columns else {}
        if noted.get(FORMAT_METADATA) != "debezium" or METADATA_COLUMN not in table.columns:
            raise PipelineError(
                f"{_TITLE}: rows with {', '.join(table.columns)} are not those of a topic of change capture: "
                'align what hr.topic(..., format="debezium") gives, as it is read and before hr.changes'
            )
        refuse_clash(table, _TITLE, (*MADE, _ALL))
        found += noted[TOPICS_METADATA]
    if len(set(found)) < len(found):
        raise PipelineError(f"{_TITLE}: a table is given twice among {', '.join(found)}; align it once")
    return found


def _check(tables: Sequence[DataFrame], transactions: DataFrame) -> None:
    if missing := {*_TRANSACTION_COLUMNS, METADATA_COLUMN}.difference(transactions.columns):
        raise PipelineError(
            f"{_TITLE}: transactions has no column {min(missing)}: describe the capture's topic of "
            'transactions as hr.topic("shop.transaction", format="debezium-transactions")'
        )
    if len({each.isStreaming for each in (*tables, transactions)}) > 1:
        raise PipelineError(f"{_TITLE}: tables and transactions must all be streams, or all static")
