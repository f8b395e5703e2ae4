"""`hr.join_tables`: two tables that change, joined, and kept current as either does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, get_args

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

from headrace.errors import PipelineError
from headrace.streams.buckets.operator import BUCKET_COUNT
from headrace.streams.changelog.join import IS_RIGHT, How, JoinedTables
from headrace.streams.changelog.zset import CHANGE_COLUMNS, CHANGED_AT, WEIGHT
from headrace.streams.changes import check_changelog, hash_of, key_of, marked
from headrace.streams.stateful import Stateful
from headrace.streams.topic import METADATA_COLUMN

_TITLE: Final = "hr.join_tables"
_ON: Final = "_on_{}"


def join_tables(
    left: DataFrame,
    right: DataFrame,
    *,
    on: str | Sequence[str] | Mapping[str, str],
    how: How = "inner",
    buckets: int = BUCKET_COUNT,
) -> DataFrame:
    """The changelog of the join of two changelogs: `hr.join_tables(orders, products, on="product_id")`.

    `on` names columns that both have, which are one column of the result; or, as a mapping, columns of the
    left and those of the right that they are equal to: `on={"product_id": "id"}`. Where that is the key of
    the right table, the left one refers to it: a change of a product changes the results of all its orders,
    and only these. All other names must differ.

    `how` is `inner`, `left` (a row of the left without a partner has nulls), or `full` (of the right, too).
    """
    if how not in get_args(How):
        raise PipelineError(f"{_TITLE}: how is {how!r}; use {', '.join(get_args(How))}")
    for side in (left, right):
        check_changelog(side, _TITLE)
    pairs = _pairs(on)
    sides = _Sides(left=left, right=right, pairs=pairs)
    sides.check()
    by = tuple(_ON.format(number) for number in range(len(pairs)))
    rows = sides.rows(by)
    logic = JoinedTables(by=by, left=sides.left_columns, right=sides.right_columns, how=how)
    operator = Stateful(title=_TITLE, rows=rows, by=by, event_time=None, buckets=buckets)
    kept = {
        f"{side}.{name}": f"{name}: {rows.schema[name].dataType.simpleString()}"
        for side, names in (("left", sides.left_columns), ("right", sides.right_columns))
        for name in names
    }
    described = operator.described("join of tables", kept, {"how": how})
    result = operator.run(rows, logic, described)
    return marked(sides.named(result, by), sides.key(how))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sides:
    """What is joined."""

    left: DataFrame
    right: DataFrame
    pairs: Mapping[str, str]
    """What is equal: columns of the left, and of the right."""

    @property
    def shared(self) -> tuple[str, ...]:
        """The columns that have one name in both, and are one in the result."""
        return tuple(name for name, other in self.pairs.items() if name == other)

    @property
    def left_columns(self) -> tuple[str, ...]:
        """The columns that results have of the left alone."""
        return self._own(self.left)

    @property
    def right_columns(self) -> tuple[str, ...]:
        """The columns that results have of the right alone."""
        return self._own(self.right)

    def check(self) -> None:
        """Refuse what can't be joined."""
        for frame, names in ((self.left, self.pairs.keys()), (self.right, self.pairs.values())):
            for name in names:
                if name not in frame.columns:
                    raise PipelineError(
                        f"{_TITLE}: there is no column {name!r} among {', '.join(frame.columns)}"
                    )
        for name, other in self.pairs.items():
            kinds = [frame.schema[each].dataType for frame, each in ((self.left, name), (self.right, other))]
            if kinds[0] != kinds[1]:
                told = " and ".join(kind.simpleString() for kind in kinds)
                raise PipelineError(f"{_TITLE}: {name} and {other} are {told}: cast one of them")
        if clash := set(self.left_columns).intersection(self.right_columns):
            raise PipelineError(
                f"{_TITLE}: both tables have a column {min(clash)}: rename one of them, with "
                f'.withColumnRenamed("{min(clash)}", ...)'
            )

    def rows(self, by: Sequence[str]) -> DataFrame:
        """The changes of both, in columns of their own."""
        has_times = all(CHANGED_AT in side.columns for side in (self.left, self.right))
        times = (CHANGED_AT,) if has_times else ()
        names = (*self.left_columns, *self.right_columns)
        kinds = {
            field.name: field.dataType for side in (self.left, self.right) for field in side.schema.fields
        }
        changes = []
        for is_right, side, keys in (
            (False, self.left, self.pairs.keys()),
            (True, self.right, self.pairs.values()),
        ):
            own = self._own(side)
            columns: list[Column] = [F.col(key).alias(name) for name, key in zip(by, keys, strict=True)]
            columns += [
                F.col(name) if name in own else F.lit(None).cast(kinds[name]).alias(name) for name in names
            ]
            told = [F.lit(is_right).alias(IS_RIGHT), F.col(WEIGHT).cast("int").alias(WEIGHT), *times]
            changes.append(side.select(*columns, *told))
        both = changes[0].unionByName(changes[1])
        return both.select("*", hash_of(tuple(by)))

    def named(self, result: DataFrame, by: Sequence[str]) -> DataFrame:
        """The result with the columns that were joined on: those of the left, then those of the right."""
        numbers = dict(zip(self.pairs, by, strict=True))
        order = [
            name
            for name in (*self.left.columns, *self.right_columns)
            if name in result.columns or name in self.shared
        ]
        columns = [
            F.col(numbers[name]).alias(name) if name in self.shared else F.col(name)
            for name in order
            if name not in CHANGE_COLUMNS
        ]
        told = [name for name in (WEIGHT, CHANGED_AT) if name in result.columns]
        return result.select(*columns, *told)

    def key(self, how: How) -> tuple[str, ...]:
        """What tells the rows of the result apart."""
        return result_key(key_of(self.left, _TITLE), key_of(self.right, _TITLE), self.pairs, how)

    def _own(self, side: DataFrame) -> tuple[str, ...]:
        apart = {*self.shared, *CHANGE_COLUMNS, METADATA_COLUMN}
        return tuple(name for name in side.columns if name not in apart)


def result_key(
    left: Sequence[str], right: Sequence[str], pairs: Mapping[str, str], how: How
) -> tuple[str, ...]:
    """What tells the rows of a join apart, of tables with these keys, where these columns are equal.

    A table whose key is part of what is joined on has one row at most for each row of the other, which then
    needs no more than its own key. A full join also has rows of either alone. They are told apart by the
    NULLs in the key of the other; or, where the tables call the columns of their keys the same, by what they
    were joined on, because they don't agree in it.
    """
    both = tuple(dict.fromkeys((*left, *right)))
    if how == "full":
        is_shared = all(pairs.get(name) == name for name in both)
        return tuple(dict.fromkeys((*both, *pairs, *pairs.values()))) if is_shared else both
    if set(right) <= set(pairs.values()):
        return tuple(left)
    return tuple(right) if set(left) <= set(pairs) and how == "inner" else both


def _pairs(on: str | Sequence[str] | Mapping[str, str]) -> dict[str, str]:
    if isinstance(on, Mapping):
        pairs = dict(on)
    else:
        pairs = {name: name for name in ((on,) if isinstance(on, str) else on)}
    if not pairs:
        raise PipelineError(f"{_TITLE}: on is empty; name the columns that are equal in both tables")
    return pairs
