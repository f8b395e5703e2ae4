"""`hr.history`: each version of a table's rows, and when it was the current one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame

from headrace.errors import PipelineError
from headrace.streams.buckets.operator import BUCKET_COUNT
from headrace.streams.changelog.versions import VALID_FROM, VALID_TO, TableVersions
from headrace.streams.changes import key_of_topic, of_versions, refuse_clash
from headrace.streams.plans.results import IDENTITY_KEY, REMOVED_KEY
from headrace.streams.sinks.records import DELETE_COLUMN
from headrace.streams.topic import CHANGE_COLUMN

_TITLE: Final = "hr.history"


def history(
    rows: DataFrame, *, key: str | Sequence[str] | None = None, buckets: int = BUCKET_COUNT
) -> DataFrame:
    """The versions of a table's rows, from the rows of a topic of changes: a type 2 dimension.

    A version has the table's columns, `valid_from` and `valid_to`, which is null while it is the current one.
    Write it to a table by the key and `valid_from`: a version is written when it comes, and again when it
    ends. All versions count, also those that came and went within a micro-batch.
    """
    if CHANGE_COLUMN not in rows.columns:
        raise PipelineError(
            f"{_TITLE}: these rows are not those of a topic of changes, in which each version is seen: give "
            'it the rows of hr.topic(..., format="debezium") or format="upsert" as they are'
        )
    keys = key_of_topic(rows, _TITLE, key)
    refuse_clash(rows, _TITLE, (VALID_FROM, VALID_TO, DELETE_COLUMN))
    result = of_versions(
        rows, TableVersions(key=keys), title=_TITLE, kind="versions of rows", key=keys, buckets=buckets
    )
    identity = (*keys, VALID_FROM)
    for name in identity:
        result = result.withMetadata(name, {IDENTITY_KEY: len(identity)})
    return result.withMetadata(DELETE_COLUMN, {REMOVED_KEY: True})
