"""What is asked of the join of a stream with a table: which version of a row, and what if there is none."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

from headrace.errors import PipelineError
from headrace.streams.time.durations import Duration, delay_us, duration_text, duration_us
from headrace.streams.windows.late import Drop, SideOutput

LookupHow = Literal["inner", "left"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AsOf:
    """The table as it was at the event's time."""

    keep_us: int
    """For how long a version is kept after another took its place, by the stream's watermark."""
    wait_us: int | None = None
    """How long an event waits for changes that are not there yet; None where it does not."""

    @property
    def text(self) -> str:
        """In words."""
        waits = "" if self.wait_us is None else f", waiting {duration_text(self.wait_us)}"
        return f"as of the event, {duration_text(self.keep_us)} kept{waits}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """An event whose key has no row waits for one."""

    wait_us: int
    then: Drop | SideOutput | None = field(default=None)
    """What becomes of it when the time is over; None as `how` says."""


Version = Literal["latest"] | AsOf
Missing = Drop | SideOutput | Wait

NO_ROW: Final = "no row"
"""The reason of an event whose key has no row in the table, or had none at its time."""
NO_KEY: Final = "no key"
"""The reason of an event that has null in what it is joined on."""


def as_of(*, keep: Duration, wait: Duration | None = None) -> AsOf:
    """The table as it was at the event's time.

    A version is kept for `keep` after another took its place, so that events may be that late. With `wait`,
    an event is joined when the table's changes have come past its time, in all partitions that have brought
    any, or when the stream's watermark has by `wait`. Without, it is joined at once, with the versions that
    have come.
    """
    keep_us = duration_us(keep, "as_of: keep")
    wait_us = None if wait is None else delay_us(wait, "as_of: wait")
    if wait_us is not None and wait_us > keep_us:
        raise PipelineError(
            f"as_of(keep={keep!r}, wait={wait!r}): an event that waits longer than versions are kept would "
            "find them gone: keep them at least as long"
        )
    return AsOf(keep_us=keep_us, wait_us=wait_us)


def wait(duration: Duration, *, then: Drop | SideOutput | None = None) -> Wait:
    """An event whose key has no row waits for one, until the stream's watermark is so far past its time.

    Then it goes where `then` says, `hr.drop` or `hr.side_output(topic)`; without it, a left join gives it
    with nulls, and an inner one drops it, counted.
    """
    if then is not None and not isinstance(then, Drop | SideOutput):
        raise PipelineError(f"wait(then={then!r}): give drop, or side_output(topic)")
    return Wait(wait_us=duration_us(duration, "wait"), then=then)


def final(missing: Missing | None) -> Drop | SideOutput | None:
    """What becomes of an event without a row in the end; None as `how` says."""
    return missing.then if isinstance(missing, Wait) else missing


def wait_us_of(missing: Missing | None) -> int | None:
    """How long an event without a row waits; None where it does not."""
    return missing.wait_us if isinstance(missing, Wait) else None


def check_asked(
    title: str,
    version: Version,
    how: LookupHow,
    missing: Missing | None,
    late: Drop | SideOutput | None = None,
) -> None:
    """Refuse what contradicts itself."""
    if how not in {"inner", "left"}:
        raise PipelineError(f"{title}: how is {how!r}; use inner, or left")
    if version != "latest" and not isinstance(version, AsOf):
        raise PipelineError(f'{title}: version is {version!r}; use "latest", or hr.as_of(keep="7 days")')
    if missing is not None and not isinstance(missing, Drop | SideOutput | Wait):
        raise PipelineError(
            f"{title}: missing is {missing!r}; use hr.wait(...), hr.side_output(topic), or hr.drop"
        )
    if late is not None and version == "latest":
        raise PipelineError(
            f"{title}: late is {late!r}, and no event is late for the row as it is: leave it out, or say "
            'version=hr.as_of(keep="7 days"); where events that find no row go is said by missing'
        )
    if how == "left" and final(missing) is not None:
        raise PipelineError(
            f'{title}: how="left" gives events that have no row in the table with nulls, so they can\'t go '
            'elsewhere: use how="inner", or leave the other place out'
        )
    wait_us = wait_us_of(missing)
    if isinstance(version, AsOf) and wait_us is not None and wait_us > version.keep_us:
        raise PipelineError(
            f"{title}: missing events wait {duration_text(wait_us)}, and versions are kept for "
            f"{duration_text(version.keep_us)}: keep them at least as long"
        )
