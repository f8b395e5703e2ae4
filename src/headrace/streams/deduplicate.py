"""`hr.deduplicate`: the first row of each key, and none like it for a while after."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame

from headrace.streams.buckets.logic import LATE
from headrace.streams.buckets.operator import BUCKET_COUNT
from headrace.streams.keyed.deduplicate import DUPLICATES, Deduplicate
from headrace.streams.stateful import Lifetime, Stateful
from headrace.streams.time.durations import Duration
from headrace.streams.time.policies import Policy
from headrace.streams.windows.late import Drop, SideOutput, drop

_TITLE: Final = "hr.deduplicate"


def deduplicate(  # noqa: PLR0913 - each is a property of the operator, given by name
    rows: DataFrame,
    *,
    by: str | Sequence[str],
    ttl: Duration | None = None,
    duplicates: Drop | SideOutput = drop,
    late: Drop | SideOutput | None = None,
    event_time: str | None = None,
    watermark: str | Policy | None = None,
    buckets: int = BUCKET_COUNT,
) -> DataFrame:
    """The rows that are the first of their key, at once: `hr.deduplicate(rows, by="event_id", ttl="1 day")`.

    With `ttl`, a row is a duplicate only of one whose event time is less than that away, so that state does
    not grow for ever; a row that is too late to be judged goes where `late` says, which is the topic
    `<pipeline>.late` if nothing is said. Without it, a key is given once, ever. Duplicates are counted, or
    go to a topic: `duplicates=hr.side_output("events.again")`.
    """
    keys = (by,) if isinstance(by, str) else tuple(by)
    lifetime = Lifetime.of(rows, _TITLE, ttl, event_time, watermark)
    operator = Stateful(
        title=_TITLE,
        rows=rows,
        by=keys,
        event_time=lifetime.column,
        buckets=buckets,
        declared=lifetime.declared,
    )
    rest = drop if ttl is None else operator.late_policy(late)
    logic = Deduplicate(
        by=keys,
        time=lifetime.column,
        ttl_us=lifetime.ttl_us,
        watermark=lifetime.watermark,
        late=rest,
        duplicates=duplicates if rows.isStreaming else drop,
    )
    described = operator.described("deduplication", {}, lifetime.settings)
    beside = {LATE: rest, DUPLICATES: duplicates}
    return operator.run(rows, logic, described, beside)
