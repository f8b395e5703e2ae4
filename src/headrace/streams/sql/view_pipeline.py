"""A view as a pipeline: its name is the pipeline's, and that of the topic that it writes."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from headrace.errors import SqlError
from headrace.streams.code import SOURCE_ATTRIBUTE
from headrace.streams.pipeline import Pipeline
from headrace.streams.sql.definitions import View, view_text
from headrace.streams.sql.shapes import shape_of, topic_key
from headrace.streams.topic import Topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def pipeline_of(view: View) -> Pipeline[Any]:
    """The pipeline that runs the view."""
    if not view.tables:
        raise SqlError(
            f"view {view.name} reads no table that is described with it: put CREATE TABLE before it, or make "
            'it by `headrace sql "CREATE VIEW ..."`'
        )
    names = {f"table_{number}": table for number, table in enumerate(view.tables)}

    parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
    signature = inspect.Signature(parameters)

    def rows_of(*args: DataFrame, **kwargs: DataFrame) -> DataFrame:
        from headrace.streams.sql.view_rows import view_rows  # noqa: PLC0415 - only where Spark runs

        given = signature.bind(*args, **kwargs).arguments
        return view_rows(view, {names[parameter].name: frame for parameter, frame in given.items()})

    rows_of.__signature__ = signature  # type: ignore[attr-defined] # functions may have one
    setattr(rows_of, SOURCE_ATTRIBUTE, view_text(view))
    key = topic_key(view, shape_of(view))
    return Pipeline(
        name=view.name,
        function=rows_of,
        writes=Topic(name=view.name, key=key, partitions=view.partitions),
        reads={name: table.topic for name, table in names.items()},
    )
