"""Have Spark understand a query, whose tables are found when it asks for them.

Spark stops at the first table that it does not know. That one is then made known, and Spark asked again: so
only tables that the query reads are looked at, however it names them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from pyspark.errors import AnalysisException
from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame, SparkSession

from headrace.errors import SqlError
from headrace.streams.describe import columns_of, plan_of
from headrace.streams.plans.lineage import UNCERTAIN, output_of, trace
from headrace.streams.sql.clauses import mentions_whole
from headrace.streams.sql.sentences import is_in_parts, name_of, sentence, streaming_sentence
from headrace.streams.sql.tokens import name_text
from headrace.streams.topic import CHANGE_COLUMN, METADATA_COLUMN

TABLES_MAX: Final = 100
"""How many tables a query may read."""
HIDDEN: Final = (METADATA_COLUMN, CHANGE_COLUMN, "_key")
"""Columns that `*` does not stand for: they come only where they are named."""
_SUBQUERIES: Final = {"ListQuery", "Exists", "ScalarSubquery", "LateralSubquery"}
_UNKNOWN_TABLE: Final = "TABLE_OR_VIEW_NOT_FOUND"
_PATH: Final = "REQUIRES_SINGLE_PART_NAMESPACE"

Find = Callable[[str], DataFrame]


def analyse(session: SparkSession, sql: str, find: Find) -> DataFrame:
    """What the query gives; `find` makes the tables, and raises where there is none."""
    # PySpark would log each table that is asked for as an error, with Java's trace.
    PySparkLogger.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    session.conf.set("spark.sql.runSQLOnFiles", "false")
    known: list[str] = []
    try:
        while True:
            try:
                return session.sql(sql)
            except AnalysisException as error:
                name = _missing(error)
                if name is None or name in known or len(known) == TABLES_MAX:
                    raise SqlError(sentence(error)) from error
                find(name).createOrReplaceTempView(name_text(name))
                known.append(name)
    finally:
        for name in known:
            session.catalog.dropTempView(name)


def analyse_on(session: SparkSession, sql: str, frames: Mapping[str, DataFrame]) -> DataFrame:
    """What the query gives on these tables, by name."""

    def find(name: str) -> DataFrame:
        for known, frame in frames.items():
            if known.lower() == name.lower():
                return frame
        raise SqlError(f"there is no table {name} among {', '.join(frames)}: describe it by CREATE TABLE")

    return analyse(session, sql, find)


def without_hidden(rows: DataFrame, sql: str) -> DataFrame:
    """Without the columns that came by `*` only, and with names that tell the columns apart."""
    kept = [name for name in rows.columns if name not in HIDDEN or mentions_whole(sql, name)]
    if len({name.lower() for name in rows.columns}) == len(rows.columns):
        return rows.select(*(name_text(name) for name in kept))
    names = unique_names(rows.columns)
    chosen = [new for new, old in zip(names, rows.columns, strict=True) if old in kept]
    return rows.toDF(*names).select(*(name_text(name) for name in chosen))


def unique_names(names: Sequence[str]) -> list[str]:
    """The names, with numbers behind those that were there before; capitals tell none apart."""
    found: list[str] = []
    for name in names:
        number, unique = 1, name
        while unique.lower() in {each.lower() for each in found}:
            number += 1
            unique = f"{name}_{number}"
        found.append(unique)
    return found


def can_stream(rows: DataFrame, mode: str) -> str | None:
    """Why Spark would not run it as a stream in that output mode; None if it would."""
    jvm: Any = rows.sparkSession._jvm  # noqa: SLF001 - there is no public way to ask
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    output_mode = getattr(jvm.org.apache.spark.sql.streaming.OutputMode, mode)()
    try:
        checker.checkForStreaming(rows._jdf.queryExecution().analyzed(), output_mode)  # noqa: SLF001 - as above
    except AnalysisException as error:
        return streaming_sentence(error)
    return None


def operators_of(rows: DataFrame) -> set[str]:
    """Spark's names of the operators that the query has."""
    return {node.kind for node in plan_of(rows).walk() if node.children}


def subqueries_of(rows: DataFrame) -> set[str]:
    """Spark's names of the queries in the query's expressions, such as `IN (SELECT ...)`."""
    return {kind for node in plan_of(rows).walk() for kind in _classes(node.fields)} & _SUBQUERIES


def uncertain_functions(rows: DataFrame, tables: Mapping[str, DataFrame], *, of_columns: bool) -> set[str]:
    """The functions that give another value each time and decide which rows there are, or what is in them.

    Those that are only in columns count `of_columns` alone.
    """
    plan = plan_of(rows)
    lineage = trace(plan, columns_of(tables))
    found = set(lineage.uncertain_rows)
    if of_columns:
        for column in output_of(plan):
            found |= lineage.causes(column)
    return found & set(UNCERTAIN.values())


def _classes(value: object) -> Iterator[str]:
    """The classes in a part of a plan's JSON."""
    if isinstance(value, Mapping):
        if isinstance(kind := value.get("class"), str):
            yield kind.rpartition(".")[2]
        for member in value.values():
            yield from _classes(member)
    elif isinstance(value, list):
        for member in value:
            yield from _classes(member)


def _missing(error: AnalysisException) -> str | None:
    """The table that Spark does not know; raise where it was written in parts."""
    parameters = error.getMessageParameters() or {}
    condition = error.getCondition()
    if condition == _UNKNOWN_TABLE:
        relation = parameters.get("relationName", "")
    elif condition == _PATH:
        relation = parameters.get("identifier", "")
    else:
        return None
    if is_in_parts(relation):
        name = name_of(relation)
        raise SqlError(f"write the name of a table that has dots in backticks: `{name}`") from error
    return name_of(relation)
