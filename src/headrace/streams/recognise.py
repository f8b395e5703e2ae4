"""Recognise Spark's aggregates among the expressions that a user gives, so that windows can compute them.

An expression is taken as Spark itself understands it: `F.sum(F.col("price") * F.col("count")).alias("total")`
is the sum, called total, of a column that Spark computes. What it is the sum of becomes a column of the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame

from headrace.errors import PipelineError
from headrace.streams.changelog.distinct import CountDistinct
from headrace.streams.failure import first_line
from headrace.streams.windows import exact
from headrace.streams.windows.aggregate import Aggregate, columns_of

ARGUMENT_PREFIX: Final = "_argument_"
"""How the columns are called that are made for aggregates."""

_MADE: Final[Mapping[str, Callable[[str, str], Aggregate]]] = {
    "Sum": lambda name, column: exact.Sum(name=name, column=column),
    "Average": lambda name, column: exact.Mean(name=name, column=column),
    "Min": lambda name, column: exact.Min(name=name, column=column),
    "Max": lambda name, column: exact.Max(name=name, column=column),
    "Count": lambda name, column: exact.Count(name=name, column=column),
}


@dataclass(slots=True)
class Recognised:
    """What was asked for."""

    title: str
    has_all_values: bool
    aggregates: list[Aggregate] = field(default_factory=list)
    arguments: dict[str, Column] = field(default_factory=dict)
    """Columns that have to be made for them, by name."""
    definitions: dict[str, str] = field(default_factory=dict)
    """What these are, in Spark's words."""
    unknown: list[str] = field(default_factory=list)
    """Aggregates that only Spark can compute."""

    @property
    def reads(self) -> set[str]:
        """The columns that they are computed of."""
        return {column for each in self.aggregates for column in columns_of(each)}

    def definition(self, aggregate: Aggregate) -> str:
        """What it keeps, in words that change when it means something else."""
        made = [self.definitions[name] for name in columns_of(aggregate) if name in self.definitions]
        return f"{aggregate!r} of {', '.join(made)}" if made else repr(aggregate)


def recognise(
    rows: DataFrame,
    asked: Sequence[Column | Aggregate],
    *,
    title: str = "hr.window",
    has_all_values: bool = False,
) -> Recognised:
    """Find out what is asked for; raise where an expression is none of rows, or is no aggregate.

    `has_all_values` says that the asker keeps what an aggregate can't be merged without.
    """
    found = Recognised(title=title, has_all_values=has_all_values)
    for each in asked:
        if isinstance(each, Column):
            _recognise_column(rows, each, found)
        else:
            found.aggregates.append(each)
    return found


def _recognise_column(rows: DataFrame, column: Column, found: Recognised) -> None:
    try:
        analyzed: Any = rows.groupBy().agg(column)._jdf.queryExecution().analyzed()  # noqa: SLF001 - no public way
    except AnalysisException as error:
        raise PipelineError(f"{found.title}: {column} can't be computed: {first_line(error)}") from error
    expression = analyzed.aggregateExpressions().head()
    name = str(expression.name())
    aggregate = expression.children().head()
    if _kind(aggregate) != "AggregateExpression":
        found.unknown.append(name)
        return
    function = aggregate.aggregateFunction()
    arguments = function.children()
    is_plain = aggregate.filter().isEmpty() and arguments.size() == 1
    make = _MADE.get(_kind(function))
    if aggregate.isDistinct():
        make = _count_distinct if found.has_all_values and _kind(function) == "Count" else None
    if make is None or not is_plain:
        found.unknown.append(name)
        return
    counts_all = _kind(arguments.head()) == "Literal" and not arguments.head().nullable()
    if _kind(function) == "Count" and counts_all and not aggregate.isDistinct():
        found.aggregates.append(exact.Count(name=name, column=None))
        return
    found.aggregates.append(make(name, _argument(rows, arguments.head(), found)))


def _count_distinct(name: str, column: str) -> Aggregate:
    return CountDistinct(name=name, column=column)


def _argument(rows: DataFrame, expression: Any, found: Recognised) -> str:
    """The column of the rows that the expression is, or that is made of it."""
    if _kind(expression) == "AttributeReference":
        return str(expression.name())
    name = f"{ARGUMENT_PREFIX}{len(found.arguments)}"
    found.definitions[name] = str(expression.sql())
    utils: Any = rows.sparkSession._jvm.org.apache.spark.sql.classic.ExpressionUtils  # type: ignore[union-attr] # noqa: SLF001 - no public way; there is a JVM where there are rows
    found.arguments[name] = Column(utils.column(expression))
    return name


def _kind(expression: Any) -> str:
    return str(expression.getClass().getSimpleName())
