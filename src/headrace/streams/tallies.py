"""Compare records in Spark: results that were computed again with those that were written.

A record's value is compared as the JSON object that it is: the order of its fields does not count, 1.0 is 1,
and columns that can't be computed twice are left out. One that is no object is compared as text.

Where last digits don't count, numbers are rounded, so that equal ones can be found by their text. Of what
remains, two are alike if they are close, as a sum is that was rounded up here and down there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

from headrace.streams.comparison import DIGITS, TOLERANCE, Kind, Tally
from headrace.streams.plans.results import Results
from headrace.streams.sinks.records import DELETE_COLUMN

LISTED_MAX: Final = 1000
"""How many differences are listed, and looked into."""

_HEADERS: Final = "array<struct<key: string, value: binary>>"
_IDENTITY: Final = ("topic", "key", "identity", "headers")
_KINDS: Final[tuple[Kind, ...]] = ("missing", "changed", "unexpected", "duplicate")
"""In the order in which they are listed: duplicates are what a guarantee may allow in any number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tallies:
    """What Spark has counted."""

    computed_count: int
    written_count: int
    different: tuple[Tally, ...]
    """No more than LISTED_MAX, those that may be errors first."""
    left_off: Mapping[Kind, int]
    """How many records more are different."""

    def has(self, kind: Kind) -> bool:
        """Whether anything is different in this way."""
        return kind in self.left_off or any(each.kind == kind for each in self.different)


def compare(computed: DataFrame, written: DataFrame, results: Results) -> Tallies:
    """Count what is different. Both are records: topic, key, value, headers; `written` has its place, too."""
    ours = comparable(computed, results).select(
        *_IDENTITY, F.col("body").alias("computed"), _no_text("written"), _count(1), _count(0, "written")
    )
    body = comparable(written, results)
    latest = _latest(body) if results.way == "latest" else body
    theirs = latest.where(_stands(results)).select(
        *_IDENTITY, _no_text("computed"), F.col("body").alias("written"), _count(0), _count(1, "written")
    )
    tallies = (
        ours.unionByName(theirs)
        .groupBy(*_IDENTITY)
        .agg(
            F.max("computed").alias("computed"),
            F.max("written").alias("written"),
            F.sum("computed_count").alias("computed_count"),
            F.sum("written_count").alias("written_count"),
        )
        .persist(StorageLevel.DISK_ONLY)
    )
    try:
        return _collect(tallies, results)
    finally:
        tallies.unpersist()


def with_written(computed: DataFrame, more: DataFrame, written: DataFrame, results: Results) -> DataFrame:
    """What was computed, and of more results those of keys that were written and are not among it."""
    body, ours, theirs = (comparable(each, results) for each in (more, computed, written))
    others = theirs.select(*(F.col(name).alias(f"_{name}") for name in _IDENTITY)).distinct()
    own = ours.select(*(F.col(name).alias(f"_own_{name}") for name in _IDENTITY)).distinct()
    is_written = [F.col(name).eqNullSafe(F.col(f"_{name}")) for name in _IDENTITY]
    is_known = [F.col(name).eqNullSafe(F.col(f"_own_{name}")) for name in _IDENTITY]
    added = body.join(others, is_written, "left_semi").join(own, is_known, "left_anti")
    return computed.unionByName(added.select(*computed.columns))


def _stands(results: Results) -> Column:
    """Whether a record that was written says that there is something."""
    if results.removed is None or results.way != "latest":
        return F.lit(True)
    if results.removed == DELETE_COLUMN:
        # It is no field of a record: one that deletes has no value.
        return F.col("body").isNotNull()
    told = F.get_json_object("body", f"$['{results.removed}']")
    return ~F.coalesce(told == results.removed_value, F.lit(False))


def counts_of(
    computed: DataFrame, tallies: Iterable[Tally], results: Results
) -> dict[object, tuple[str | None, int]]:
    """What another computation gives for the same results: the value, and how often."""
    body = comparable(computed, results)
    identities = [_row_identity(each) for each in tallies]
    schema = f"topic string, key binary, identity array<string>, headers {_HEADERS}"
    wanted = F.broadcast(computed.sparkSession.createDataFrame(identities, schema))
    same = [body[name].eqNullSafe(wanted[name]) for name in _IDENTITY]
    counted = (
        body.join(wanted, same, "left_semi")
        .groupBy(*_IDENTITY)
        .agg(F.max("body").alias("body"), F.count("*").alias("count"))
    )
    return {_identity(row): (row["body"], row["count"]) for row in counted.collect()}


def comparable(records: DataFrame, results: Results) -> DataFrame:
    """Records with what they are compared by: `identity`, and `body`."""
    fields = F.from_json(F.col("value").cast("string"), "map<string,variant>")
    entries = F.array_sort(
        F.map_entries(F.transform_values("_fields", lambda _name, value: F.to_json(value)))
    )
    shown = F.filter(entries, lambda entry: ~entry["key"].isin(list(results.uncertain)))

    def field_text(entry: Column) -> Column:
        is_float = entry["key"].isin(list(results.approximate))
        value = F.when(is_float, _rounded(entry["value"])).otherwise(entry["value"])
        return F.concat(F.lit('"'), entry["key"], F.lit('":'), value)

    texts = F.transform(shown, field_text)
    is_object = F.col("_fields").isNotNull()
    text = F.concat(F.lit("{"), F.array_join(texts, ","), F.lit("}"))
    body = F.when(is_object, text).otherwise(F.col("value").cast("string"))
    is_latest = results.way == "latest"
    named = F.array(*(_field(name) for name in results.identity)).cast("array<string>")
    headers = F.coalesce(F.col("headers"), F.array().cast(_HEADERS))
    return (
        records.withColumn("_fields", fields)
        .withColumn("body", body)
        .withColumn("identity", named if is_latest else F.array("body"))
        # By key, what counts is the last value; how it was sent does not make it another.
        .withColumn("headers", F.array().cast(_HEADERS) if is_latest else headers)
    )


def with_parts(records: DataFrame, body: str, results: Results) -> DataFrame:
    """Records with the parts of a body: `exact`, and `numbers`, whose last digits don't count."""
    fields = F.from_json(F.col(body), "map<string,variant>")
    texts = F.transform_values(fields, lambda _name, value: F.to_json(value))
    rest = F.map_filter("_texts", lambda name, _value: ~name.isin(list(results.approximate)))
    numbers = (F.try_element_at(F.col("_texts"), F.lit(name)) for name in results.approximate)
    return (
        records.withColumn("_texts", texts)
        .withColumn("exact", F.coalesce(F.to_json(rest), F.col(body)))
        .withColumn("numbers", F.array(*numbers).cast("array<string>"))
        .drop("_texts")
    )


def are_close(ours: Column, theirs: Column) -> Column:
    """Whether `numbers` differ in nothing but their last digits. `comparison.is_close` says the same."""

    def is_close(one: Column, other: Column) -> Column:
        left, right = one.try_cast("double"), other.try_cast("double")
        within = F.abs(left - right) <= F.greatest(F.abs(left), F.abs(right)) * TOLERANCE
        return one.eqNullSafe(other) | F.coalesce(within, F.lit(False))

    return F.forall(F.zip_with(ours, theirs, is_close), lambda each: each)


def _rounded(text: Column) -> Column:
    """A number with no more than DIGITS digits; what is no number stays what it is."""
    number = text.try_cast("double")
    scale = F.pow(F.lit(10.0), F.lit(DIGITS - 1) - F.floor(F.log10(F.abs(number))))
    rounded = F.when(number == 0, 0.0).otherwise(F.rint(number * scale) / scale)
    return F.coalesce(rounded.cast("string"), text)


def _field(name: str) -> Column:
    return F.to_json(F.try_element_at(F.col("_fields"), F.lit(name)))


def _latest(written: DataFrame) -> DataFrame:
    """The last record of each key. Across partitions, as when a topic has grown, by time."""
    by_offset = F.max_by("body", "offset")
    by_time = F.max_by("body", F.struct("timestamp", "offset"))
    in_one = F.min("partition") == F.max("partition")
    return written.groupBy(*_IDENTITY).agg(F.when(in_one, by_offset).otherwise(by_time).alias("body"))


def _collect(tallies: DataFrame, results: Results) -> Tallies:
    totals = tallies.agg(F.sum("computed_count"), F.sum("written_count")).collect()[0]
    differs = F.col("computed_count") != F.col("written_count")
    if results.way == "latest":
        differs |= ~F.col("computed").eqNullSafe(F.col("written"))
    elif results.way == "contained":
        differs = F.col("computed_count") > F.col("written_count")
    different = tallies.where(differs)
    if results.way == "contained" and results.approximate:
        different = _without_alike(different, tallies, results)
    different = different.withColumn("kind", _kind())
    listed = different.orderBy("kind", "topic", "key", "identity").limit(LISTED_MAX).collect()
    return Tallies(
        computed_count=totals[0] or 0,
        written_count=totals[1] or 0,
        different=tuple(_tally(row) for row in listed),
        left_off=_left_off(different, listed) if len(listed) == LISTED_MAX else {},
    )


def _without_alike(missing: DataFrame, tallies: DataFrame, results: Results) -> DataFrame:
    """Those that were not written in other last digits either, as often as they are missing."""
    surplus = F.col("written_count") - F.col("computed_count")
    ours = with_parts(missing, "computed", results)
    theirs = with_parts(tallies.where(surplus > 0), "written", results)
    same = ("topic", "key", "headers", "exact")
    written = theirs.select(
        *(F.col(name).alias(f"_{name}") for name in (*same, "numbers")), surplus.alias("_surplus")
    )
    alike = [F.col(name).eqNullSafe(F.col(f"_{name}")) for name in same]
    is_enough = F.col("_surplus") + surplus >= 0
    return ours.join(
        written, [*alike, is_enough, are_close(F.col("numbers"), F.col("_numbers"))], "left_anti"
    ).drop("exact", "numbers")


def _kind() -> Column:
    """The number of the kind among _KINDS. `Tally.kind` says the same."""
    computed, written = F.col("computed_count"), F.col("written_count")
    return (
        F.when(written == 0, 0)
        .when(computed == 0, 2)
        .when(~F.col("computed").eqNullSafe(F.col("written")), 1)
        .otherwise(F.when(written > computed, 3).otherwise(0))
    )


def _left_off(different: DataFrame, listed: Sequence[Any]) -> dict[Kind, int]:
    count = F.greatest(F.abs(F.col("computed_count") - F.col("written_count")), F.lit(1))
    rows = different.groupBy("kind").agg(F.sum(count).alias("count")).collect()
    counts = {_KINDS[row["kind"]]: int(row["count"]) for row in rows}
    for row in listed:
        counts[_KINDS[row["kind"]]] -= _tally(row).count
    return {kind: count for kind, count in counts.items() if count > 0}


def _tally(row: Any) -> Tally:
    return Tally(
        identity=_identity(row),
        topic=row["topic"],
        key=None if row["key"] is None else bytes(row["key"]).decode(errors="replace"),
        computed=row["computed"],
        written=row["written"],
        computed_count=row["computed_count"],
        written_count=row["written_count"],
    )


def _identity(row: Any) -> tuple[object, ...]:
    headers = tuple((header["key"], _bytes(header["value"])) for header in row["headers"])
    return row["topic"], _bytes(row["key"]), tuple(row["identity"]), headers


def _row_identity(tally: Tally) -> tuple[object, ...]:
    assert isinstance(tally.identity, tuple)
    topic, key, identity, headers = tally.identity
    return topic, None if key is None else bytearray(key), list(identity), _header_rows(headers)


def _header_rows(headers: Sequence[tuple[str, bytes | None]]) -> list[tuple[str, bytearray | None]]:
    return [(key, None if value is None else bytearray(value)) for key, value in headers]


def _bytes(value: Collection[int] | None) -> bytes | None:
    return None if value is None else bytes(value)


def _no_text(name: str) -> Column:
    return F.lit(None).cast("string").alias(name)


def _count(number: int, side: str = "computed") -> Column:
    return F.lit(number).cast("bigint").alias(f"{side}_count")
