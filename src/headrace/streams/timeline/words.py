"""What an operator is, and what happened in it, in sentences. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from headrace.streams.time.durations import duration_text
from headrace.streams.time.policies import Adaptive, Bounded, Declared, Policy
from headrace.streams.timeline.operators import Traced
from headrace.streams.timeline.scales import time_text
from headrace.streams.timeline.timeline import Firing, Key, Row, Timeline, Window
from headrace.streams.windows.globals import GlobalWindows
from headrace.streams.windows.kinds import GlobalWindow, kind_text
from headrace.streams.windows.late import Drop, LatePolicy, SideOutput
from headrace.streams.windows.triggers import Each, Early, Trigger

_UNITS_SHOWN: Final = 2


def operator_words(operator: Traced) -> Iterator[str]:
    """What an operator does with rows and time."""
    logic = operator.logic
    by = f" by {keys}" if (keys := ", ".join(operator.by)) else ""
    kind = getattr(logic, "kind", GlobalWindow() if isinstance(logic, GlobalWindows) else None)
    yield f"{operator.name}: {'keeps state' if kind is None else kind_text(kind)}{by}"
    policy = operator.policy
    if policy is None:
        yield "it does not look at event time"
    else:
        yield f"event time is the column {operator.event_time}; {watermark_words(policy)}"
    trigger: Trigger | None = getattr(logic, "trigger", None)
    if trigger is not None:
        yield trigger_words(trigger)
    if policy is not None and operator.late is not None:
        yield late_words(operator.late)


def watermark_words(policy: Policy) -> str:
    """How long is waited for late rows."""
    partition = "of the partition that is furthest behind"
    if isinstance(policy, Bounded):
        told = f"the watermark is the newest event {partition}, less {duration_text(policy.delay_us)}"
    elif isinstance(policy, Adaptive):
        told = (
            f"the watermark is the newest event {partition}, less what {policy.quantile:g} of the last "
            f"events were late by, {duration_text(policy.at_least_us)} to {duration_text(policy.at_most_us)}"
        )
    elif isinstance(policy, Declared):
        told = f"the watermark is what the column {policy.column} says {partition}{_spoken(policy)}"
    else:
        return "the watermark comes with the end of the input"
    if policy.idle_after_us is None:
        return f"{told}; a partition that falls silent is waited for without end (no idle_after)"
    return f"{told}; a partition without records for {duration_text(policy.idle_after_us)} is not waited for"


def _spoken(policy: Declared) -> str:
    if policy.partitions is None:
        return ""
    are = "1 partition has" if policy.partitions == 1 else f"{policy.partitions:,} partitions have"
    return f", once {are} said something"


def trigger_words(trigger: Trigger) -> str:
    """When windows give results."""
    if isinstance(trigger, Each):
        if trigger.where is not None:
            return f"it gives a result after each row in which {trigger.where} is true"
        if trigger.rows is not None:
            return f"it gives a result for each {rows_words(trigger.rows)} of a key"
        return f"it gives a result each time that the log is {duration_text(trigger.every_us or 0)} further"
    told = "a window fires on time when the watermark comes to its end"
    if not isinstance(trigger, Early):
        return told
    if trigger.rows is not None:
        return f"{told}, and early for each {rows_words(trigger.rows)} that came"
    return f"{told}, and early each time that the log is {duration_text(trigger.every_us or 0)} further"


def late_words(late: LatePolicy) -> str:
    """What becomes of late rows."""
    if isinstance(late, SideOutput):
        return f"late rows go to the topic {late.topic}"
    if isinstance(late, Drop):
        return "late rows are counted and dropped"
    rest = late_words(late.then)
    again = " and takes back what it gave before" if late.retract else ""
    return (
        f"until {duration_text(late.within_us)} after its end a window that late rows change fires "
        f"again{again}; after that, {rest}"
    )


def row_story(timeline: Timeline, row: Row) -> Iterator[str]:
    """All that happened to a row."""
    moment = timeline.moments[row.moment]
    happened = "has no event time" if row.event_us is None else f"happened at {time_text(row.event_us)}"
    yield (
        f"{row.place} (key {key_words(row.key)}) {happened} and was written at "
        f"{time_text(row.record_us)}{_delay(row)}"
    )
    yield (
        f"it came with batch {moment.batch}, when the watermark was {_watermark(moment.before_us)}; after "
        f"the batch it was {_watermark(moment.after_us)}"
    )
    if row.fate == "no_event_time":
        yield f"without an event time it is in no window: it {_went(timeline)}"
    elif row.lateness is not None:
        yield from _late_story(timeline, row)
    elif timeline.has_windows:
        windows = list(timeline.windows_of(row))
        for window in windows:
            yield window_story(timeline, window)
        if not windows:
            yield "no window that has it is among those that are known"


def late_story(timeline: Timeline, row: Row) -> Iterator[str]:
    """What happened to a late row, in short: when it came, and why it was late."""
    first, _batch, *rest = row_story(timeline, row)
    yield first
    yield from rest


def _late_story(timeline: Timeline, row: Row) -> Iterator[str]:
    assert row.lateness is not None, "only late rows have a story of it"
    lateness = row.lateness
    closed = f", and was kept for {duration_text(timeline.within_us)} more" if timeline.within_us else ""
    yield (
        f"it was late: its window {_bounds(lateness.start_us, lateness.end_us)} had ended{closed}, and the "
        f"watermark was {length(lateness.late_by_us)} past that end; it {_went(timeline)}"
    )
    driver = driver_of(timeline, row)
    if driver is not None:
        yield driver


def driver_of(timeline: Timeline, row: Row) -> str | None:
    """What took the watermark to where it was when the row came; None where there was none."""
    before_us = timeline.moments[row.moment].before_us
    if before_us is None:
        return None
    reached = next((each for each in timeline.moments[: row.moment] if each.after_us == before_us), None)
    if reached is None or reached.holder is None:
        return "the watermark had come there before the first record that is looked at"
    by = f" with {reached.holder_place}" if reached.holder_place else ""
    idle = f"; not waited for: {', '.join(reached.idle)}" if reached.idle else ""
    if reached.holder_declared_us is not None:
        said = f"{reached.holder} had said{by} that it was complete up to"
        return (
            f"the watermark came there in batch {reached.batch}: {said} "
            f"{time_text(reached.holder_declared_us)}{idle}"
        )
    delay = "" if reached.delay_us is None else f", less {length(reached.delay_us)}"
    return (
        f"the watermark came there in batch {reached.batch}: {reached.holder} had come to "
        f"{time_text(reached.holder_event_us)}{by}{delay}{idle}"
    )


def window_story(timeline: Timeline, window: Window) -> str:
    """The life of a window in a sentence."""
    if window.end_us is None:
        return f"the global window of {key_words(window.key)} {_fired(timeline, window)}"
    named = f"the window {_bounds(window.start_us, window.end_us)} of {key_words(window.key)}"
    return f"{named} has {rows_words(window.row_count)}, {_fired(timeline, window)}"


def _fired(timeline: Timeline, window: Window) -> str:
    told = [
        f"{'took back' if firing.retracted else 'fired'} {firing.kind.replace('_', ' ')} in batch "
        f"{timeline.moments[firing.moment].batch} ({values_words(firing)})"
        for firing in window.firings
    ]
    if window.closed is not None:
        told.append(f"was closed in batch {timeline.moments[window.closed].batch}")
    elif window.is_open:
        told.append("is open")
    else:
        told.append("still takes corrections")
    return ", ".join(told)


def values_words(firing: Firing) -> str:
    """The aggregates: `count 3, total 12.5`."""
    return ", ".join(f"{name} {value}" for name, value in firing.values.items())


def rows_words(count: int) -> str:
    """`1 row`, `1,200 rows`."""
    return f"{count:,} row{'' if count == 1 else 's'}"


def key_words(key: Key) -> str:
    """A key as it is shown."""
    return ", ".join("null" if value is None else value for value in key) or "all rows"


def length(length_us: int) -> str:
    """A length of time in its two largest units: `4 minutes 48 seconds`."""
    words = duration_text(length_us).split()
    return " ".join(words[: 2 * _UNITS_SHOWN])


def _delay(row: Row) -> str:
    if row.event_us is None or row.record_us is None:
        return ""
    late_us = row.record_us - row.event_us
    return f", {length(abs(late_us))} {'later' if late_us >= 0 else 'before it happened'}"


def _watermark(time_us: int | None) -> str:
    return "not there yet" if time_us is None else time_text(time_us)


def _bounds(start_us: int | None, end_us: int | None) -> str:
    return f"{time_text(start_us)} to {time_text(end_us)}"


def _went(timeline: Timeline) -> str:
    if timeline.late_topic is None:
        return "was counted and dropped"
    return f"went to the topic {timeline.late_topic}"
