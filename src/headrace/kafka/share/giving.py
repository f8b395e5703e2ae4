"""What a member of a share group is given, batch by batch: a decision that changes nothing. Pure logic.

Batches are given out whole, unless a member wants no more than so many records, or the batch has failed
often. What has failed often is given out alone, and by ever smaller parts: see deliveries.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from headrace.kafka.share.runs import DeliveryState, Part, Run, Runs, changed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class Span(NamedTuple):
    """A batch of the log, as a range of offsets, with those in front of it that are no more."""

    first: int
    last: int
    is_hidden: bool = False
    """Whether nobody is to see it: a marker, or a part of an aborted transaction."""


class Acquired(NamedTuple):
    """Offsets that a member has been given."""

    first: int
    last: int
    delivery_count: int

    @property
    def offset_count(self) -> int:
        """How many offsets these are."""
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Acquisition:
    """How a member wants to be given records."""

    member_id: str
    deadline_ms: int
    record_count_max: int
    is_exact: bool = False
    """Whether no more than so many offsets are given out; else the last batch is given as a whole."""
    batch_count: int = 1
    """How many offsets belong together in what the member is told, at least: it acknowledges by those."""
    in_flight_count_max: int
    """How many offsets may be in flight. A batch that begins below the limit is given out as a whole."""
    delivery_count_max: int

    def part_of(self, run: Run) -> int:
        """How many offsets of what is available are given out together, by how often they have failed."""
        if not self.is_suspect(run):
            return run.offset_count
        is_last_try = run.delivery_count + 1 >= self.delivery_count_max
        return 1 if is_last_try else max(run.offset_count // 2, 1)

    def is_suspect(self, run: Run) -> bool:
        """Whether it has failed so often that it is given out alone."""
        return run.delivery_count >= max((self.delivery_count_max + 1) // 2, 2)


class Giving:
    """What a member is given, batch by batch; nothing changes before the end."""

    def __init__(self, runs: Runs, start_offset: int, end_offset: int, wanted: Acquisition) -> None:
        self._runs = runs
        self._index = 0
        self._end_offset = self._reached = end_offset
        self._room_ends = start_offset + wanted.in_flight_count_max
        self._wanted = wanted
        self._left_count = wanted.record_count_max
        self._parts: list[Part[bool]] = []
        """What is given out, or is hidden."""
        self.acquired: list[Acquired] = []
        self.is_over = False

    def give(self, span: Span) -> None:
        """Give out what is available in a batch, if more is wanted and may be in flight."""
        last = span.last
        if last >= self._reached and self._reached >= self._room_ends:
            # What is in flight already may be given out again.
            last = self._reached - 1
        if self._left_count <= 0 or span.first > last:
            self.is_over = True
            return
        self._reached = max(self._reached, last + 1)
        if span.is_hidden and not self._runs and not self.acquired:
            # Nothing is in flight before it, so neither is it.
            self._room_ends = self._reached + self._wanted.in_flight_count_max
        for run in self._within(span.first, last):
            if run.state is not DeliveryState.AVAILABLE:
                continue
            if span.is_hidden:
                self._parts.append(Part(run.first, run.last, False))
            elif not self._give(run):
                return

    def runs(self) -> Runs:
        """The runs after it."""
        runs = self._runs
        if self._reached > self._end_offset:
            runs = (*runs, Run(self._end_offset, self._reached - 1, DeliveryState.AVAILABLE))

        def change(run: Run, is_given: bool) -> Run:  # what the part says
            if not is_given:
                return run._replace(state=DeliveryState.ARCHIVED)
            wanted = self._wanted
            return Run(
                run.first,
                run.last,
                DeliveryState.ACQUIRED,
                run.delivery_count + 1,
                wanted.member_id,
                wanted.deadline_ms,
            )

        return changed(runs, self._parts, change)

    def _give(self, run: Run) -> bool:
        """Give out what is available; say whether more may go with it."""
        wanted = self._wanted
        is_suspect = wanted.is_suspect(run)
        if (is_suspect and self.acquired) or (wanted.is_exact and self._left_count <= 0):
            self.is_over = True
            return False
        count = wanted.part_of(run)
        if wanted.is_exact:
            count = min(count, self._left_count)
        given = Acquired(run.first, run.first + count - 1, run.delivery_count + 1)
        self.acquired.append(given)
        self._parts.append(Part(given.first, given.last, True))
        self._left_count -= count
        self.is_over = is_suspect
        return not is_suspect

    def _within(self, first: int, last: int) -> Iterator[Run]:
        """The parts of runs that lie there, and what nobody has had yet."""
        while self._index < len(self._runs) and self._runs[self._index].first <= last:
            run = self._runs[self._index]
            if run.last >= first:
                yield run.between(first, last)
            if run.last > last:
                return
            self._index += 1
        if last >= self._end_offset:
            yield Run(max(first, self._end_offset), last, DeliveryState.AVAILABLE)


def together(acquired: Iterable[Acquired], batch_count: int) -> Iterator[Acquired]:
    """Neighbours as one, until there are so many offsets in it."""
    held: Acquired | None = None
    for each in acquired:
        if held is None:
            held = each
        elif (
            held.last + 1 == each.first
            and held.delivery_count == each.delivery_count
            and held.offset_count < batch_count
        ):
            held = held._replace(last=each.last)
        else:
            yield held
            held = each
    if held is not None:
        yield held
