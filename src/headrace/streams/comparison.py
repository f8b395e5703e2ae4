"""What was written, beside what is computed again: differences, and why they are there. No Spark in here.

Two ways to compare:

    rows     as multisets: each result must have been written as often as it is computed
    latest   by key: of the results of a key, which an aggregate updates again and again, the last counts

A difference is judged by what is known of how the pipeline was run. `wrong` is what should not be;
`expected` is what the guarantee, or a batch that is not finished, allows; `undecided` is what can't be told
from what is still there. Only `wrong` and `undecided` keep a result from being verified.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

Kind = Literal["missing", "changed", "unexpected", "duplicate"]
Judgement = Literal["wrong", "expected", "undecided"]
Verdict = Literal["equal", "different", "undecided"]

DIGITS: Final = 10
"""How many digits of a floating-point number count where an aggregate has made it."""
TOLERANCE: Final = 1.5 * 10.0 ** (1 - DIGITS)
"""By what share of them two such numbers may differ. A sum that lies between two numbers of so many digits is
rounded to either, which are one unit of the last digit apart; the half is for how these are stored."""
UNKNOWN_WRITER: Final = (
    "written by somebody else, or by this pipeline before its checkpoint was begun: it can't be told"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """A result, and how often it was computed and written; or a key, and what was computed and written."""

    identity: Hashable
    """What makes two of them the same."""
    topic: str
    key: str | None
    computed: str | None
    """The value; None if there is none."""
    written: str | None
    computed_count: int
    written_count: int

    @property
    def kind(self) -> Kind | None:
        """What is different; None if nothing is."""
        if self.computed_count and self.written_count:
            if self.computed != self.written and not is_close(self.computed, self.written):
                return "changed"
            if self.computed_count == self.written_count:
                return None
            return "duplicate" if self.written_count > self.computed_count else "missing"
        if self.computed_count:
            return "missing"
        return "unexpected" if self.written_count else None

    @property
    def count(self) -> int:
        """How many records are too many or too few."""
        return abs(self.computed_count - self.written_count) or 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A result that is not as it was computed again."""

    kind: Kind
    topic: str
    key: str | None
    computed: str | None
    written: str | None
    count: int
    judgement: Judgement
    cause: str | None
    """None if it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Results that a known cause accounts for, and how many of each at most."""

    cause: str
    kinds: frozenset[Kind]
    judgement: Judgement
    counts: Mapping[Hashable, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What is known of how the pipeline was run, and of what it wrote."""

    may_repeat: bool = False
    """Whether it ever ran at-least-once."""
    may_lose: bool = False
    """Whether it ever ran at-most-once."""
    code_changed: str | None = None
    """How its code has changed since the checkpoint was begun; None if it has not."""
    results_deleted: str | None = None
    """How results may have been deleted from the topic; None if none were."""
    shared_with: tuple[str, ...] = ()
    """Other pipelines that are known to write the same topic."""
    filters_results: bool = False
    """By key: whether results are filtered, so that an older one may be the last that was written."""
    drops_late_rows: bool = False
    """Whether rows that came behind the watermark were left out."""
    in_progress: bool = False
    """By key: whether there are records that a batch that is not finished may have read."""
    deletes_results: bool = False
    """By key: whether a result may delete an older one."""
    arrival_unknown: str | None = None
    """Why the order in which they came is not known in full; None if it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The outcome."""

    way: Literal["rows", "latest", "contained"]
    computed_count: int
    written_count: int
    differences: tuple[Difference, ...] = ()
    left_off: Mapping[Judgement, int] = field(default_factory=dict)
    """How many more differ than are listed, judged by what is known without looking into each."""
    remarks: tuple[str, ...] = field(default=())

    def count(self, judgement: Judgement) -> int:
        """How many records differ so."""
        listed = sum(each.count for each in self.differences if each.judgement == judgement)
        return listed + self.left_off.get(judgement, 0)

    @property
    def verdict(self) -> Verdict:
        """Whether what was written is what should have been."""
        if self.count("wrong"):
            return "different"
        return "undecided" if self.count("undecided") else "equal"


def is_close(one: str | None, other: str | None) -> bool:
    """Whether two JSON texts differ in nothing but the last digits of numbers."""
    try:
        return one is not None and other is not None and _is_close(json.loads(one), json.loads(other))
    except ValueError:
        return False


def _is_close(one: object, other: object) -> bool:
    if isinstance(one, float) or isinstance(other, float):
        numbers = isinstance(one, float | int) and isinstance(other, float | int)
        return numbers and math.isclose(one, other, rel_tol=TOLERANCE)  # type: ignore[arg-type] # see above
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_is_close(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_is_close, one, other))
    return one == other


def tally(computed: Iterable[Hashable], written: Iterable[Hashable]) -> Iterator[Tally]:
    """Compare as multisets: what Spark does with large ones."""
    left, right = Counter(computed), Counter(written)
    for identity in sorted({*left, *right}, key=repr):
        yield Tally(
            identity=identity,
            topic="",
            key=None,
            computed=str(identity) if left[identity] else None,
            written=str(identity) if right[identity] else None,
            computed_count=left[identity],
            written_count=right[identity],
        )


def judge(
    tallies: Iterable[Tally], explanations: Sequence[Explanation], circumstances: Circumstances
) -> list[Difference]:
    """Each difference, with its cause where it can be known. A cause accounts for so many of each at most."""
    left = [dict(explanation.counts) for explanation in explanations]
    differences = []
    for each in tallies:
        kind = each.kind
        if kind is None:
            continue
        count = each.count
        for explanation, counts in zip(explanations, left, strict=True):
            taken = min(count, counts.get(each.identity, 0)) if kind in explanation.kinds else 0
            if taken:
                counts[each.identity] -= taken
                count -= taken
                differences.append(_difference(each, kind, taken, explanation.judgement, explanation.cause))
        if count:
            differences.append(_difference(each, kind, count, *_judgement(kind, circumstances)))
    return differences


def judge_left_off(counts: Mapping[Kind, int], circumstances: Circumstances) -> dict[Judgement, int]:
    """Those that are too many to be looked into: what the guarantee allows, and what nobody can tell."""
    judged: Counter[Judgement] = Counter()
    for kind, count in counts.items():
        judgement, _ = _judgement(kind, circumstances)
        judged["expected" if judgement == "expected" else "undecided"] += count
    return dict(judged)


def explain(
    tallies: Iterable[Tally],
    alternative: Mapping[Hashable, tuple[str | None, int]],
    *,
    by_key: bool,
    cause: str,
    kinds: frozenset[Kind],
    judgement: Judgement,
) -> Explanation:
    """What a computation from other input, which gave these values and counts, accounts for."""
    counts: dict[Hashable, int] = {}
    for each in tallies:
        value, count = alternative.get(each.identity, (None, 0))
        if by_key:
            explained = int((value, count > 0) == (each.written, each.written_count > 0))
        elif each.kind == "missing":
            explained = each.computed_count - count
        else:
            explained = count - each.computed_count
        if explained > 0:
            counts[each.identity] = explained
    return Explanation(cause=cause, kinds=kinds, judgement=judgement, counts=counts)


def _difference(each: Tally, kind: Kind, count: int, judgement: Judgement, cause: str | None) -> Difference:
    return Difference(
        kind=kind,
        topic=each.topic,
        key=each.key,
        computed=each.computed,
        written=each.written,
        count=count,
        judgement=judgement,
        cause=cause,
    )


def _judgement(kind: Kind, known: Circumstances) -> tuple[Judgement, str | None]:
    """Of what no computation has explained: the first cause that may be."""
    possible: tuple[tuple[bool, Judgement, str | None], ...] = (
        (
            kind == "duplicate" and known.may_repeat,
            "expected",
            "written again after a stop: the pipeline ran at-least-once",
        ),
        (
            kind == "missing" and known.may_lose,
            "expected",
            "lost in a stop: the pipeline ran at-most-once",
        ),
        (kind == "missing" and known.results_deleted is not None, "undecided", known.results_deleted),
        (
            kind == "unexpected" and known.filters_results,
            "undecided",
            "perhaps an older result of the key: newer ones don't pass the pipeline's filter",
        ),
        (
            known.in_progress
            and (kind in {"changed", "unexpected"} or (kind == "missing" and known.deletes_results)),
            "undecided",
            "perhaps a result of a batch that is not finished: stop the pipeline, and verify again",
        ),
        (
            known.code_changed is not None,
            "wrong",
            f"perhaps written by other code: {known.code_changed}",
        ),
        (
            kind != "missing" and bool(known.shared_with),
            "undecided",
            f"perhaps written by {', '.join(known.shared_with)}",
        ),
        (
            kind in {"changed", "missing"} and known.drops_late_rows,
            "undecided",
            "perhaps rows of it came behind the watermark, and were left out",
        ),
        (
            known.arrival_unknown is not None,
            "undecided",
            f"perhaps the table's row was another when the event came: {known.arrival_unknown}",
        ),
        (kind == "unexpected", "undecided", UNKNOWN_WRITER),
    )
    return next(((judgement, cause) for applies, judgement, cause in possible if applies), ("wrong", None))
