"""`hr.lookup`: the events of a stream, each with the row of a table that has its key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

from headrace.errors import PipelineError
from headrace.streams.arrival_order import current_arrival_order, note_lookup
from headrace.streams.buckets.logic import LATE, Logic
from headrace.streams.buckets.operator import BUCKET_COUNT
from headrace.streams.building import find_building
from headrace.streams.changelog.current import IS_FOR_ALL, KIND, TRUNCATE
from headrace.streams.changelog.zset import CHANGE_COLUMNS, WEIGHT
from headrace.streams.changes import refuse_unordered, table_key
from headrace.streams.event_time import EventTime, find_event_time, keep_event_time, mark_event_time
from headrace.streams.joins.asked import (
    AsOf,
    LookupHow,
    Missing,
    Version,
    check_asked,
    final,
    wait_us_of,
)
from headrace.streams.joins.by_arrival import BATCH
from headrace.streams.joins.lookup import MISSING, REASON_COLUMN, Lookup
from headrace.streams.joins.sides import DECLARED, LEFT, RIGHT, TIME
from headrace.streams.plans.results import AWAITED_KEY
from headrace.streams.put_together import JoinSide, check_keys, put_together, times_beside
from headrace.streams.stateful import Stateful
from headrace.streams.time.policies import Policy
from headrace.streams.time_only import source_numbers, time_only
from headrace.streams.topic import CHANGE_COLUMN, METADATA_COLUMN
from headrace.streams.windows.late import Drop, SideOutput, drop

_TITLE: Final = "hr.lookup"


def lookup(  # noqa: PLR0913 - each is a property of the operator, given by name
    stream: DataFrame,
    table: DataFrame,
    *,
    on: str | Sequence[str] | Mapping[str, str],
    version: Version = "latest",
    how: LookupHow = "inner",
    missing: Missing | None = None,
    late: Drop | SideOutput | None = None,
    event_time: str | None = None,
    watermark: str | Policy | None = None,
    buckets: int = BUCKET_COUNT,
) -> DataFrame:
    """Events with the rows of a table that changes: `hr.lookup(orders, products, on="product_id")`.

    The table is the rows of a topic of changes (`hr.topic(..., format="debezium")` or `"upsert"`) as they
    are, or, for `latest`, a changelog. Its key is what is joined on: columns of the same names, or, as a
    mapping, those of the stream and those of the table: `on={"product_id": "id"}`.

    `version` is `latest`, the row as it is when the event is processed, or `hr.as_of(keep="7 days")`, the row
    as it was at the event's time. No event is joined before all of the table has been read that was there
    when the pipeline was first started.

    An event whose key has no row is dropped, counted, or, with `how="left"`, given with nulls. `missing` says
    otherwise: `hr.side_output(topic)`, or `hr.wait("10 minutes")`. With `as_of`, an event that is more than
    `keep` behind the watermark goes where `late` says: the topic `<pipeline>.late` if nothing is said.

    Results have the columns of the stream, `_kafka` included, and then those of the table.
    """
    check_asked(_TITLE, version, how, missing, late)
    asked = _Asked(stream=stream, table=table, pairs=_pairs(on), version=version)
    asked.check(missing)
    is_timed = isinstance(version, AsOf) or wait_us_of(missing) is not None
    time = find_event_time(stream, _TITLE, event_time, watermark) if is_timed else None
    sides = asked.sides(time)
    keys = tuple(asked.pairs)
    order = current_arrival_order()
    note_lookup(has_places=all(side.has_places for side in sides))
    both = put_together(sides, keys)
    if order is not None and not both.isStreaming:
        both = both.withColumn(BATCH, order.batch_of(asked.place_topic()))
    operator = Stateful(
        title=_TITLE,
        rows=both,
        by=keys,
        event_time=None if time is None else TIME,
        buckets=buckets,
        declared=DECLARED if DECLARED in both.columns else None,
        everywhere=IS_FOR_ALL if CHANGE_COLUMN in table.columns else None,
    )
    rest = operator.late_policy(late) if isinstance(version, AsOf) else drop
    left, right = sides
    logic = Lookup(
        by=keys,
        left=left.columns,
        right=tuple(name for name in right.columns if name not in {KIND, IS_FOR_ALL, WEIGHT}),
        version=version,
        how=how,
        missing=missing if both.isStreaming else _in_batch(missing),
        stream_watermark=None if time is None else time.policy(stream),
        late=rest,
        keeps_places=left.has_places,
        table_ends=_table_ends(table),
    )
    runs: Logic = logic if order is None or both.isStreaming else order.by_arrival(logic, both)
    settings = {"version": version if version == "latest" else version.text, "how": how}
    described = operator.described("join with a table", asked.kept(logic), settings)
    places = {LATE: rest, MISSING: final(missing) or drop}
    with time_only(times_beside(left) if time is not None else []):
        result = operator.run(both, runs, described, places, table_ends=bool(logic.table_ends))
    return _marked(result.select(*asked.order(logic)), stream, time, missing, version)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """What is joined."""

    stream: DataFrame
    table: DataFrame
    pairs: Mapping[str, str]
    """What is equal: columns of the stream, and of the table."""
    version: Version

    def check(self, missing: Missing | None) -> None:
        """Refuse what can't be joined."""
        if self.stream.isStreaming != self.table.isStreaming:
            raise PipelineError(
                f"{_TITLE}: one side is a stream, and the other is not: Spark's own join takes a table that "
                'does not change, as in rows.join(F.broadcast(table), "id")'
            )
        if CHANGE_COLUMN in self.table.columns:
            refuse_unordered(self.table, _TITLE)
        keys = self._table_key()
        if set(keys) != set(self.pairs.values()):
            raise PipelineError(
                f"{_TITLE}: the table has a row for each {', '.join(keys)}, and is joined on "
                f"{', '.join(self.pairs.values())}: join on its key, or join tables with hr.join_tables"
            )
        renamed = {other: name for name, other in self.pairs.items()}
        frames = {"stream": self.stream, "table": self.table.withColumnsRenamed(renamed)}
        check_keys(_TITLE, frames, tuple(self.pairs))
        if clash := set(self.stream.columns).intersection(self.table_columns):
            name = min(clash)
            raise PipelineError(
                f"{_TITLE}: both the stream and the table have a column {name!r}: drop one, or rename it, as "
                f'in .withColumnRenamed("{name}", "table_{name}")'
            )
        if isinstance(final(missing), SideOutput) and REASON_COLUMN in self.stream.columns:
            raise PipelineError(
                f"{_TITLE}: events that have no row get a column {REASON_COLUMN!r}, which these have: rename "
                "theirs"
            )

    def sides(self, time: EventTime | None) -> tuple[JoinSide, JoinSide]:
        """The stream, and the table, as they are put together."""
        kind = "timestamp" if time is None else self.stream.schema[time.column].dataType.simpleString()
        nothing = F.lit(None).cast(kind)
        left = JoinSide(
            name=LEFT,
            rows=self.stream,
            columns=tuple(name for name in self.stream.columns if name not in {*self.pairs, METADATA_COLUMN}),
            time=nothing if time is None else F.col(time.column),
            declared=None if time is None else time.declared,
            is_named=False,
        )
        rows, at = self._changes()
        told = [name for name in (KIND, IS_FOR_ALL, WEIGHT) if name in rows.columns]
        right = JoinSide(
            name=RIGHT,
            rows=rows,
            columns=(*self.table_columns, *told),
            time=at.cast(kind) if isinstance(self.version, AsOf) else nothing,
        )
        return left, right

    @property
    def table_columns(self) -> tuple[str, ...]:
        """The columns that results have of the table; those that are joined on only if their name differs."""
        apart = {*CHANGE_COLUMNS, CHANGE_COLUMN, METADATA_COLUMN}
        shared = {name for name, other in self.pairs.items() if name == other}
        return tuple(name for name in self.table.columns if name not in apart | shared)

    def kept(self, logic: Lookup) -> dict[str, str]:
        """What is in the state, by name."""
        sides = (("stream", self.stream, logic.left), ("table", self.table, logic.right))
        return {
            f"{side}.{name}": rows.schema[name].dataType.simpleString()
            for side, rows, names in sides
            for name in names
        }

    def order(self, logic: Lookup) -> list[str]:
        """The columns of results."""
        given = [name for name in self.stream.columns if name != METADATA_COLUMN or logic.keeps_places]
        return [*given, *logic.right]

    def place_topic(self) -> Column:
        """The topic that a row is of, of those that are put together."""
        return F.regexp_replace(F.col(METADATA_COLUMN)["topic"], f"^{RIGHT} ", "")

    def _changes(self) -> tuple[DataFrame, Column]:
        """The changes, with what they are joined on under the names of the stream, and when they happened."""
        rows = self.table.withColumns({name: F.col(other) for name, other in self.pairs.items()})
        if WEIGHT in rows.columns:
            return rows, F.lit(None)
        change = F.col(CHANGE_COLUMN)
        return rows.withColumns({KIND: change["kind"], IS_FOR_ALL: change["kind"] == TRUNCATE}), change["at"]

    def _table_key(self) -> tuple[str, ...]:
        if CHANGE_COLUMN in self.table.columns:
            return table_key(self.table, _TITLE, CHANGE_COLUMN, None)
        if WEIGHT not in self.table.columns:
            raise PipelineError(
                f"{_TITLE}: the table's rows are no changes of a table: describe their topic as "
                'hr.topic(..., format="debezium", key="id") or format="upsert"'
            )
        if isinstance(self.version, AsOf):
            raise PipelineError(
                f"{_TITLE}: in a changelog not each version is seen, which hr.as_of needs: give it the rows "
                'of hr.topic(..., format="debezium") or format="upsert" as they are'
            )
        return table_key(self.table, _TITLE, WEIGHT, None)


def _in_batch(missing: Missing | None) -> Missing | None:
    """In a batch there is no other place."""
    return drop if isinstance(final(missing), SideOutput) else missing


def _table_ends(table: DataFrame) -> Mapping[str, int]:
    """How far the table's topics must be read before the first event is joined."""
    building = find_building()
    if building is None or not table.isStreaming:
        return {}
    return building.ends_of(source_numbers(table))


def _marked(
    result: DataFrame,
    stream: DataFrame,
    time: EventTime | None,
    missing: Missing | None,
    version: Version,
) -> DataFrame:
    """The results, with what is known of them."""
    waits = wait_us_of(missing) is not None or (isinstance(version, AsOf) and version.wait_us is not None)
    result = keep_event_time(stream, result)
    if waits and time is not None:
        # How long to wait for results is not said: those that have waited come later than others.
        result = mark_event_time(result, time.column, None)
    for field in result.schema.fields if waits else ():
        result = result.withMetadata(field.name, {**field.metadata, AWAITED_KEY: True})
    return result


def _pairs(on: str | Sequence[str] | Mapping[str, str]) -> dict[str, str]:
    if isinstance(on, Mapping):
        pairs = dict(on)
    else:
        pairs = {name: name for name in ((on,) if isinstance(on, str) else on)}
    if not pairs:
        raise PipelineError(f"{_TITLE}: on is empty; name the columns that are the table's key")
    return pairs
