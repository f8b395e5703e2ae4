"""Pipelines on Spark.

    import headrace.streams as hr

    transactions = hr.topic("transactions", schema="tx_id string not null, card_id string, amount double")

    @hr.pipeline(writes=hr.topic("large", key="card_id"))
    def large(transactions):
        return transactions.where("amount > 1000")

`headrace run FILE` runs it live; a unit test calls `large(hr.static(spark, transactions, rows))`.

Spark is an extra. Where it is not installed, this package can still be imported, because finding Java and
the connector jars must work first; but each name below then says what to install.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, NoReturn

from headrace.errors import SetupError

if TYPE_CHECKING or find_spec("pyspark") is not None:
    from headrace.streams.deduplicate import deduplicate
    from headrace.streams.keyed.vectorised import EventTime
    from headrace.streams.keyed_state import keyed, vectorised
    from headrace.streams.pipeline import Pipeline, pipeline
    from headrace.streams.recent import recent
    from headrace.streams.sinks.idempotent import idempotent
    from headrace.streams.sinks.writers import read_delta
    from headrace.streams.static import static
    from headrace.streams.table import DeltaTable, PostgresTable, delta_table, postgres_table
    from headrace.streams.time.policies import adaptive, bounded, perfect
    from headrace.streams.top import top
    from headrace.streams.topic import Topic, topic
    from headrace.streams.window import Windowed, window
    from headrace.streams.windows.kinds import (
        cumulative,
        global_window,
        hopping,
        session_window,
        sliding,
        tumbling,
    )
    from headrace.streams.windows.late import drop, side_output, update
    from headrace.streams.windows.quantiles import percentile, percentiles
    from headrace.streams.windows.rank import greatest_rows
    from headrace.streams.windows.sketches import approximate_distinct, heavy_hitters
    from headrace.streams.windows.triggers import each, early, on_time
else:

    def __getattr__(name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        raise SetupError("pipelines need Spark: pip install 'headrace[spark]'")


__all__ = [
    "DeltaTable",
    "EventTime",
    "Pipeline",
    "PostgresTable",
    "Topic",
    "Windowed",
    "adaptive",
    "approximate_distinct",
    "bounded",
    "cumulative",
    "deduplicate",
    "delta_table",
    "drop",
    "each",
    "early",
    "global_window",
    "greatest_rows",
    "heavy_hitters",
    "hopping",
    "idempotent",
    "keyed",
    "on_time",
    "percentile",
    "percentiles",
    "perfect",
    "pipeline",
    "postgres_table",
    "read_delta",
    "recent",
    "session_window",
    "side_output",
    "sliding",
    "static",
    "top",
    "topic",
    "tumbling",
    "update",
    "vectorised",
    "window",
]
