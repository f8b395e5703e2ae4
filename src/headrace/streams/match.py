"""`hr.match`: patterns over the rows of a key.

    hr.match(transactions, by="card_id", order_by="at", pattern="probe{3} big", within="5 minutes",
             define={"probe": F.col("amount") < 10, "big": F.col("amount") > 1000})

Conditions over the row are computed by Spark, all of them into one column of bits; only conditions that ask
for the match so far run in Python, and only for rows that could be part of a match. The language is that of
headrace.streams.patterns.syntax.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, get_args

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows
from pyspark.sql.types import BooleanType

from headrace.errors import PipelineError
from headrace.streams.buckets.logic import LATE
from headrace.streams.buckets.operator import BUCKET_COUNT
from headrace.streams.building import current_building
from headrace.streams.event_time import find_event_time
from headrace.streams.failure import first_line
from headrace.streams.keyed.calling import parameter_count, place
from headrace.streams.match_recent import RecentSearch, is_for_history, match_recent, refuse
from headrace.streams.patterns.equals import APART
from headrace.streams.patterns.evidence import CUT_OFF
from headrace.streams.patterns.logic import LIMIT, PatternMatches
from headrace.streams.patterns.normal_form import Contiguity, normal_form
from headrace.streams.patterns.program import compile_pattern
from headrace.streams.patterns.skipping import Arrival, Emit, non_overlapping
from headrace.streams.patterns.so_far import MatchSoFar
from headrace.streams.patterns.syntax import names_of, parse, steps_of
from headrace.streams.patterns.words import words_of
from headrace.streams.recognise import ARGUMENT_PREFIX
from headrace.streams.sinks.records import JSON_OPTIONS
from headrace.streams.stateful import Stateful
from headrace.streams.time.durations import Duration, duration_text, duration_us
from headrace.streams.time.policies import Policy
from headrace.streams.windows.late import Drop, SideOutput, drop

RowCondition = Column | str
"""A condition over the row alone: a column, or an expression of SQL."""
Function = Callable[[Mapping[str, Any], MatchSoFar], bool]
Condition = RowCondition | Function | tuple[RowCondition, Function]

LIMIT_MAX: Final = 100_000
NAMES_MAX: Final = 60
"""How many names a pattern can have: there is a bit for each."""

_TITLE: Final = "hr.match"
_CONDITIONS: Final = "give a column, a function of the row and the match so far, or a pair of both"
_MASK: Final = f"{ARGUMENT_PREFIX}mask"


def match(  # noqa: PLR0913 - each is a property of the operator, given by name
    rows: DataFrame,
    *,
    by: str | Sequence[str],
    pattern: str,
    define: Mapping[str, Condition],
    order_by: str | Arrival | None = None,
    within: Duration | None = None,
    emit: Emit = non_overlapping,
    contiguity: Contiguity = "strict",
    timed_out: bool = False,
    limit: int = LIMIT,
    late: Drop | SideOutput | None = None,
    cut_off: Drop | SideOutput | None = None,
    event_time: str | None = None,
    watermark: str | Policy | None = None,
    buckets: int = BUCKET_COUNT,
) -> DataFrame:
    """The matches of a pattern in the rows of each key: who they are of, when they were, and their evidence.

    `pattern` is a regular expression over names: `"probe{3} big"`, `"order !cancel paid"`, `"rise+? crash"`.
    `define` says which rows have a name, by a condition over the row (`F.col("amount") < 10`, or SQL), by a
    function of the row and the match so far (`lambda row, match: row["amount"] > match.previous["amount"]`),
    or by a pair of both, of which the function is only asked where the condition is true.

    Rows are in the order of their event time, which `order_by` names unless the topic does, as far as the
    watermark has come; or, with `order_by=hr.arrival`, in the order of the log, at once. `within` is the time
    from the first row of a match to the last, both included. With `contiguity="strict"` a match is of rows
    that follow each other; `..` between two steps lets others lie there, and `"relaxed"` does everywhere.

    `emit` says where the search goes on after a match: behind it (`hr.non_overlapping`), at every row
    (`hr.all_matches`), or at rows of a name (`hr.skip_to_first("big")`, `hr.skip_to_last("big")`).

    Each match has the `by` columns, `start`, `end`, `outcome` ("match"), `evidence` (an array of
    struct<matched: the name, row: the row>) and `id`, which is the same whenever it is found. With
    `timed_out`, attempts that were still possible when their time was over come out as well, with the outcome
    "timed_out". An attempt looks at `limit` rows; what would need more goes to the topic
    `<pipeline>.cut-off`, or where `cut_off` says, and is left out in batch. Late rows go to
    `<pipeline>.late`, or where `late` says.

    In real-time mode, patterns are found that fit a bounded history of each key: see match_recent.py.
    """
    keys = (by,) if isinstance(by, str) else tuple(by)
    is_by_arrival = isinstance(order_by, Arrival)
    named = event_time if order_by is None or isinstance(order_by, Arrival) else order_by
    if named is not None and event_time not in {None, named}:
        raise PipelineError(
            f"{_TITLE}: order_by is {order_by!r} and event_time is {event_time!r}: the order is that of "
            "event time, so name it once; or say order_by=hr.arrival"
        )
    time = find_event_time(rows, _TITLE, named, watermark)
    asked = _asked(rows, pattern, define, emit, contiguity)
    if not 1 <= limit <= LIMIT_MAX:
        raise PipelineError(f"{_TITLE}: limit is {limit}; use 1 to {LIMIT_MAX:,} rows")
    within_us = None if within is None else duration_us(within, f"{_TITLE}: within")
    if is_for_history(rows):
        _refuse_for_real_time(asked, is_by_arrival=is_by_arrival, contiguity=contiguity, timed_out=timed_out)
        search = RecentSearch(
            by=keys,
            time=time.column,
            words=words_of(pattern),
            names=asked.names,
            mask=asked.mask,
            within_us=within_us,
        )
        search.check(rows, emit, limit)
        return _with_id(match_recent(rows, search), keys)
    operator = Stateful(
        title=_TITLE,
        rows=rows,
        by=keys,
        event_time=time.column,
        buckets=buckets,
        declared=time.declared,
    )
    rest = operator.late_policy(late)
    cut = _cut_off(rows, cut_off)
    logic = PatternMatches(
        by=keys,
        time=time.column,
        program=compile_pattern(normal_form(parse(pattern), contiguity), asked.names),
        names=asked.names,
        mask=_MASK,
        watermark=time.policy(rows),
        within_us=within_us,
        functions=asked.functions,
        emit=emit,
        limit=limit,
        is_by_arrival=is_by_arrival,
        skips_others=contiguity == "relaxed",
        tells_timed_out=timed_out,
        late=rest,
        cut_off=cut,
    )
    settings = {
        "pattern": " ".join(pattern.split()),
        "names": ", ".join(asked.names),
        "names that ask for the match so far": ", ".join(asked.names[bit] for bit in asked.functions)
        or "none",
        "contiguity": contiguity,
        "matches": str(emit),
        "within": "no limit" if within_us is None else duration_text(within_us),
        "event time": time.column,
        "order": "arrival" if is_by_arrival else "event time",
        "limit of rows": str(limit),
    }
    described = operator.described("pattern", {}, settings)
    made = rows.withColumn(_MASK, asked.mask)
    return _with_id(operator.run(made, logic, described, {LATE: rest, CUT_OFF: cut}), keys)


def _with_id(found: DataFrame, by: Sequence[str]) -> DataFrame:
    """Matches with an id of what was found, and never of when: one that is found again has the same."""
    told = F.to_json(F.struct(*by, "start", "end", "outcome", "evidence"), JSON_OPTIONS)
    apart = F.col(APART).cast("string") if APART in found.columns else F.lit(None).cast("string")
    return found.withColumn("id", F.md5(F.concat_ws("", told, apart))).drop(APART)


def _refuse_for_real_time(
    asked: _Asked, *, is_by_arrival: bool, contiguity: Contiguity, timed_out: bool
) -> None:
    """Refuse what takes more than the last rows of a key, in SQL."""
    if not is_by_arrival:
        refuse(
            "rows in the order of event time wait for the watermark, which hardly moves there; say "
            "order_by=hr.arrival"
        )
    for bit in asked.functions:
        refuse(f"{asked.names[bit]!r} asks a function, and no Python runs there; write it as a column")
    if contiguity != "strict":
        refuse("with contiguity='relaxed' any number of rows may lie between; leave it out")
    if timed_out:
        refuse("that a time is over is told by a timer, and there are none; leave timed_out out")


def _cut_off(rows: DataFrame, asked: Drop | SideOutput | None) -> Drop | SideOutput:
    """Where attempts go that reach the limit; one that says nothing has a topic for them."""
    if not rows.isStreaming:
        return drop
    if asked is not None:
        return asked
    building = current_building(_TITLE)
    taken = {topic.name for topic in building.side_topics.values()}
    name, number = f"{building.pipeline}.cut-off", 1
    while name in taken:
        number += 1
        name = f"{building.pipeline}.cut-off-{number}"
    return SideOutput(topic=name)


@dataclass(slots=True, kw_only=True)
class _Asked:
    """The names of a pattern, and what they mean."""

    names: tuple[str, ...]
    mask: Column
    functions: dict[int, Function] = field(default_factory=dict)


def _asked(
    rows: DataFrame, pattern: str, define: Mapping[str, Condition], emit: Emit, contiguity: Contiguity
) -> _Asked:
    if contiguity not in get_args(Contiguity):
        raise PipelineError(f"{_TITLE}: contiguity is {contiguity!r}; say 'strict' or 'relaxed'")
    if not isinstance(emit, Emit):
        raise PipelineError(
            f"{_TITLE}: emit is {emit!r}; say hr.non_overlapping, hr.all_matches, hr.skip_to_first(name) or "
            "hr.skip_to_last(name)"
        )
    names = tuple(define)
    if len(names) > NAMES_MAX:
        raise PipelineError(f"{_TITLE}: {len(names)} names are defined; there can be {NAMES_MAX}")
    used = names_of(parse(pattern))
    if emit.name is not None and emit.name not in steps_of(parse(pattern)):
        raise PipelineError(
            f"{_TITLE}: emit is {emit}, and no row is taken as {emit.name!r} in {pattern!r}: name "
            "a step of it"
        )
    if missing := used.difference(names):
        raise PipelineError(f"{_TITLE}: nothing says which rows are {min(missing)!r}: put it into define")
    if unused := set(names).difference(used):
        raise PipelineError(f"{_TITLE}: {min(unused)!r} is defined, and is not in the pattern {pattern!r}")
    found = _Asked(names=names, mask=F.lit(0).cast("bigint"))
    for bit, (name, condition) in enumerate(define.items()):
        column, function = _parts(rows, name, condition)
        if function is not None:
            found.functions[bit] = function
        is_set = F.lit(True) if column is None else F.coalesce(column, F.lit(False))
        found.mask = found.mask.bitwiseOR(F.when(is_set, F.lit(1 << bit)).otherwise(F.lit(0)).cast("bigint"))
    return found


def _parts(rows: DataFrame, name: str, condition: Condition) -> tuple[Column | None, Function | None]:
    """What Spark can compute of a condition, and what is asked in Python."""
    column: object = None
    function: object = None
    if isinstance(condition, tuple):
        column, function = condition
    elif isinstance(condition, Column | str):
        column = condition
    else:
        function = condition
    asked = None if function is None else _checked(name, function)
    if column is None:
        return None, asked
    if not isinstance(column, Column | str):
        raise PipelineError(f"{_TITLE}: {name!r} is {column!r}; {_CONDITIONS}")
    made = F.expr(column) if isinstance(column, str) else column
    try:
        kind = rows.select(made.alias("condition")).schema["condition"].dataType
    except AnalysisException as error:
        raise PipelineError(f"{_TITLE}: {name!r} can't be computed: {first_line(error)}") from error
    if not isinstance(kind, BooleanType):
        raise PipelineError(f"{_TITLE}: {name!r} is {kind.simpleString()}; a condition is true or false")
    return made, asked


def _checked(name: str, function: object) -> Function:
    if not callable(function):
        raise PipelineError(f"{_TITLE}: {name!r} is {function!r}; {_CONDITIONS}")
    try:
        parameter_count(function, name, (2,))
    except PipelineError as error:
        raise PipelineError(
            f"{_TITLE}: {name!r} is {place(function)}, which does not take two arguments: the row, and the "
            "match so far"
        ) from error
    return function
