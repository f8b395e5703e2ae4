"""What has changed between the pipeline that made a checkpoint and the one that is to go on from it.

A change is breaking when Spark would refuse to start, or would go on with state that means something else.
The second is the worse: Spark compares the types of what is kept, not what it is, so that sums go on as
maxima and windows of a minute as windows of five without a word.

Not breaking: filters, projections, names, output columns; what they change counts from now on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from headrace.streams.plans.description import Description, Operator, Part

T = TypeVar("T")

ANEW: Final = "give the pipeline another name to start anew, or replay its history into a new checkpoint"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One thing that has changed."""

    what: str
    """The operator or the source, and what became of it."""
    breaking: bool
    """Whether the checkpoint can't be gone on from."""
    advice: str

    def __str__(self) -> str:
        return f"{self.what}: {self.advice}"


def changes(kept: Description, now: Description) -> list[Change]:
    """All that has changed and matters to a checkpoint, what breaks it first."""
    found = [
        *_source_changes(kept.sources, now.sources),
        *_operator_changes(kept.operators, now.operators),
        *_setting_changes(kept, now),
    ]
    return sorted(found, key=lambda change: not change.breaking)


def _source_changes(kept: Sequence[str], now: Sequence[str]) -> Iterator[Change]:
    if sorted(kept) == sorted(now):
        if tuple(kept) != tuple(now):
            yield Change(
                what=f"the topics are read in another order: {', '.join(now)} instead of {', '.join(kept)}",
                breaking=True,
                advice="offsets are kept by this order, so restore it",
            )
        return
    gone, new = _without(kept, now), _without(now, kept)
    for topic in gone:
        yield Change(what=f"the topic {topic} is no longer read", breaking=True, advice=f"read it, or {ANEW}")
    for topic in new:
        yield Change(
            what=f"the topic {topic} is read in addition", breaking=True, advice=f"leave it out, or {ANEW}"
        )


def _operator_changes(kept: Sequence[Operator], now: Sequence[Operator]) -> Iterator[Change]:
    kinds_kept, kinds_now = [each.kind for each in kept], [each.kind for each in now]
    if kinds_kept == kinds_now:
        for before, after in zip(kept, now, strict=True):
            yield from _within(before, after)
        return
    for operator in _without(kept, now, _kind):
        yield Change(
            what=f"the {operator} is gone", breaking=True, advice=f"its state can't be left behind: {ANEW}"
        )
    for operator in _without(now, kept, _kind):
        yield Change(
            what=f"the {operator} is new", breaking=True, advice=f"the checkpoint has no state for it: {ANEW}"
        )
    if sorted(kinds_kept) == sorted(kinds_now):
        yield Change(
            what=f"the order of {', '.join(kinds_kept)} has changed",
            breaking=True,
            advice="state is kept by this order, so restore it",
        )


def _within(before: Operator, after: Operator) -> Iterator[Change]:
    yield from _key_changes(before, after)
    yield from _state_changes(before, after)
    yield from _setting_changes_within(before, after)


def _key_changes(before: Operator, after: Operator) -> Iterator[Change]:
    if len(before.keys) != len(after.keys):
        texts = (_texts(before.keys), _texts(after.keys))
        yield Change(
            what=f"the {before.kind} is by {texts[1]} instead of {texts[0]}",
            breaking=True,
            advice=f"its state is kept by the old keys: {ANEW}",
        )
        return
    for old, new in zip(before.keys, after.keys, strict=True):
        if old.definition == new.definition:
            continue
        if old.typed != new.typed:
            how = (
                f"has another type: {new.typed} instead of {old.typed}"
                if old.text == new.text
                else (f"is by {new.text} instead of {old.text}")
            )
            what = f"the {before}: its key {how}" if old.text == new.text else f"the {before.kind} {how}"
        else:
            what = f"the {before}: its key {old.text} is made in another way"
        yield Change(what=what, breaking=True, advice=f"its state is kept by the old key: {ANEW}")


def _state_changes(before: Operator, after: Operator) -> Iterator[Change]:
    pairs = list(zip(before.state, after.state, strict=False))
    if len(before.state) == len(after.state) and all(_is_same_layout(*pair) for pair in pairs):
        for old, new in pairs:
            if old.definition != new.definition:
                yield Change(
                    what=f"the {before}: what {old.text} is made of has changed",
                    breaking=False,
                    advice="what it holds so far was made in the old way; replay to correct that, too",
                )
        return
    gone = _without(before.state, after.state, _text)
    new_parts = _without(after.state, before.state, _text)
    for part in gone:
        yield _state_change(before, f"no longer keeps {part.text}", f"keep it, or {ANEW}")
    for part in new_parts:
        yield _state_change(
            before, f"keeps {part.text} in addition", f"what it should hold so far is not known: {ANEW}"
        )
    if not gone and not new_parts:
        yield from _rearranged(before, after)


def _setting_changes_within(before: Operator, after: Operator) -> Iterator[Change]:
    if not before.settings:
        # One of Spark's own, or nobody has noted them down.
        return
    for name in sorted({*before.settings, *after.settings}):
        old, new = (each.settings.get(name, "not set") for each in (before, after))
        if old != new:
            yield _state_change(
                before,
                f"has another {name}: {new} instead of {old}",
                f"what it keeps was made for the old one: restore it, or {ANEW}",
            )


def _rearranged(before: Operator, after: Operator) -> Iterator[Change]:
    if _names(before) != _names(after):
        yield _state_change(
            before,
            f"keeps {_texts(after.state)} in another order than {_texts(before.state)}",
            "state is kept by this order, so restore it",
        )
    for old, new in zip(before.state, after.state, strict=False):
        if old.text == new.text and old.typed != new.typed:
            yield _state_change(
                before, f"keeps {old.text} in another type: {new.typed} instead of {old.typed}", ANEW
            )


def _state_change(operator: Operator, what: str, advice: str) -> Change:
    return Change(what=f"the {operator} {what}", breaking=True, advice=advice)


def _is_same_layout(old: Part, new: Part) -> bool:
    return old.typed == new.typed or old.definition == new.definition


def _setting_changes(kept: Description, now: Description) -> Iterator[Change]:
    if kept.output_mode != now.output_mode:
        yield Change(
            what=f"the output mode is {now.output_mode} instead of {kept.output_mode}",
            breaking=bool(kept.operators or now.operators),
            advice=f"what was written so far means something else: restore it, or {ANEW}",
        )
    if kept.operators and kept.shuffle_partition_count != now.shuffle_partition_count:
        yield Change(
            what=f"shuffle_partition_count is {now.shuffle_partition_count} instead of "
            f"{kept.shuffle_partition_count}",
            breaking=False,
            advice=f"Spark goes on with {kept.shuffle_partition_count}; to change it, {ANEW}",
        )
    for column in sorted({*kept.watermarks, *now.watermarks}):
        old, new = kept.watermarks.get(column), now.watermarks.get(column)
        if old != new and kept.operators:
            yield Change(
                what=f"the watermark of {column} is {new or 'none'} instead of {old or 'none'}",
                breaking=new is None,
                advice="it counts from the next batch on; what was late already stays late"
                if new is not None
                else "state would be kept for ever: restore it",
            )


def _itself(item: object) -> object:
    return item


def _kind(operator: Operator) -> str:
    return operator.kind


def _text(part: Part) -> str:
    return part.text


def _texts(parts: Sequence[Part]) -> str:
    return ", ".join(part.text for part in parts) or "nothing"


def _names(operator: Operator) -> list[str]:
    return [part.text for part in operator.state]


def _without(items: Sequence[T], others: Sequence[T], name: Callable[[T], object] = _itself) -> list[T]:
    """The items that are not among the others, as multisets, compared by name."""
    left = [name(other) for other in others]
    rest = []
    for item in items:
        if name(item) in left:
            left.remove(name(item))
        else:
            rest.append(item)
    return rest
