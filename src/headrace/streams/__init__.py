"""Pipelines on Spark.

    import headrace.streams as hr

    transactions = hr.topic("transactions", schema="tx_id string not null, card_id string, amount double")

    @hr.pipeline(writes=hr.topic("large", key="card_id"))
    def large(transactions):
        return transactions.where("amount > 1000")

`headrace run FILE` runs it live; a unit test calls `large(hr.static(spark, transactions, rows))`.

Spark is an extra. Where it is not installed, this package can still be imported, because finding Java and
the connector jars must work first; but each name below then says what to install.

Each name is loaded when it is first asked for: every Python process that Spark starts loads this package
before any module in it, and most of them need one module of a hundred. Several names are those of the
modules that define them, too. Python would let `hr.topic` be the module as soon as anybody has imported
that; here it is the function, always.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Final

from headrace.errors import SetupError

if TYPE_CHECKING:
    from headrace.streams.aggregate import aggregate
    from headrace.streams.aligned import aligned
    from headrace.streams.changes import changes, upserts
    from headrace.streams.corrected import corrected
    from headrace.streams.deduplicate import deduplicate
    from headrace.streams.join import join
    from headrace.streams.join_tables import join_tables
    from headrace.streams.joins.asked import as_of, wait
    from headrace.streams.joins.within import between
    from headrace.streams.keyed.vectorised import EventTime
    from headrace.streams.keyed_state import keyed, vectorised
    from headrace.streams.lookup import lookup
    from headrace.streams.match import match
    from headrace.streams.patterns.skipping import (
        all_matches,
        arrival,
        non_overlapping,
        skip_to_first,
        skip_to_last,
    )
    from headrace.streams.patterns.so_far import MatchSoFar
    from headrace.streams.pipeline import Pipeline, pipeline
    from headrace.streams.project import events, project
    from headrace.streams.recent import recent
    from headrace.streams.sinks.idempotent import idempotent
    from headrace.streams.sinks.stores import read_delta
    from headrace.streams.static import static
    from headrace.streams.stores import cache, duckdb_table, search_index
    from headrace.streams.table import DeltaTable, PostgresTable, delta_table, postgres_table
    from headrace.streams.table_history import history
    from headrace.streams.time.policies import adaptive, bounded, declared, perfect
    from headrace.streams.top import top
    from headrace.streams.topic import Topic, topic
    from headrace.streams.window import Windowed, window
    from headrace.streams.windows.arrival import first, last
    from headrace.streams.windows.count_min import estimated_counts
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

_HOMES: Final = {
    "DeltaTable": "table",
    "EventTime": "keyed.vectorised",
    "MatchSoFar": "patterns.so_far",
    "Pipeline": "pipeline",
    "PostgresTable": "table",
    "Topic": "topic",
    "Windowed": "window",
    "adaptive": "time.policies",
    "aggregate": "aggregate",
    "aligned": "aligned",
    "all_matches": "patterns.skipping",
    "approximate_distinct": "windows.sketches",
    "arrival": "patterns.skipping",
    "as_of": "joins.asked",
    "between": "joins.within",
    "bounded": "time.policies",
    "cache": "stores",
    "changes": "changes",
    "corrected": "corrected",
    "cumulative": "windows.kinds",
    "declared": "time.policies",
    "deduplicate": "deduplicate",
    "delta_table": "table",
    "drop": "windows.late",
    "duckdb_table": "stores",
    "each": "windows.triggers",
    "early": "windows.triggers",
    "estimated_counts": "windows.count_min",
    "events": "project",
    "first": "windows.arrival",
    "global_window": "windows.kinds",
    "greatest_rows": "windows.rank",
    "heavy_hitters": "windows.sketches",
    "history": "table_history",
    "hopping": "windows.kinds",
    "idempotent": "sinks.idempotent",
    "join": "join",
    "join_tables": "join_tables",
    "keyed": "keyed_state",
    "last": "windows.arrival",
    "lookup": "lookup",
    "match": "match",
    "non_overlapping": "patterns.skipping",
    "on_time": "windows.triggers",
    "percentile": "windows.quantiles",
    "percentiles": "windows.quantiles",
    "perfect": "time.policies",
    "pipeline": "pipeline",
    "postgres_table": "table",
    "project": "project",
    "read_delta": "sinks.stores",
    "recent": "recent",
    "search_index": "stores",
    "session_window": "windows.kinds",
    "side_output": "windows.late",
    "skip_to_first": "patterns.skipping",
    "skip_to_last": "patterns.skipping",
    "sliding": "windows.kinds",
    "static": "static",
    "top": "top",
    "topic": "topic",
    "tumbling": "windows.kinds",
    "update": "windows.late",
    "upserts": "changes",
    "vectorised": "keyed_state",
    "wait": "joins.asked",
    "window": "window",
}
"""Which module below this one defines each name: the same as above, for when it runs."""


class _Streams(ModuleType):
    """This package, which does not let the modules in it take the place of its names."""

    def __setattr__(self, name: str, value: object) -> None:
        """What Python does with each module that it has imported."""
        if name not in _HOMES or not isinstance(value, ModuleType):
            super().__setattr__(name, value)

    def __reduce__(self) -> tuple[object, tuple[str]]:
        """Functions that use it travel to Spark's workers, and find it there by its name."""
        return import_module, (__name__,)


sys.modules[__name__].__class__ = _Streams


if not TYPE_CHECKING:
    # A type checker that saw this would let any name pass.
    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if find_spec("pyspark") is None:
            raise SetupError("pipelines need Spark: pip install 'headrace[spark]'")
        value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        # Next time it is found without being asked for.
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__all__ = [
    "DeltaTable",
    "EventTime",
    "MatchSoFar",
    "Pipeline",
    "PostgresTable",
    "Topic",
    "Windowed",
    "adaptive",
    "aggregate",
    "aligned",
    "all_matches",
    "approximate_distinct",
    "arrival",
    "as_of",
    "between",
    "bounded",
    "cache",
    "changes",
    "corrected",
    "cumulative",
    "declared",
    "deduplicate",
    "delta_table",
    "drop",
    "duckdb_table",
    "each",
    "early",
    "estimated_counts",
    "events",
    "first",
    "global_window",
    "greatest_rows",
    "heavy_hitters",
    "history",
    "hopping",
    "idempotent",
    "join",
    "join_tables",
    "keyed",
    "last",
    "lookup",
    "match",
    "non_overlapping",
    "on_time",
    "percentile",
    "percentiles",
    "perfect",
    "pipeline",
    "postgres_table",
    "project",
    "read_delta",
    "recent",
    "search_index",
    "session_window",
    "side_output",
    "skip_to_first",
    "skip_to_last",
    "sliding",
    "static",
    "top",
    "topic",
    "tumbling",
    "update",
    "upserts",
    "vectorised",
    "wait",
    "window",
]
