"""The offsets of one partition, as one share group sees them. Pure logic: no log, no clock.

    0 ... start_offset          settled: accepted, rejected, given up, skipped or deleted
    start_offset ... end_offset in flight: each offset is in one of the states below
    end_offset ...              nobody has had them yet

    AVAILABLE --acquire--> ACQUIRED --accept, gap--------------------> ACKNOWLEDGED
        ^                     |-----reject, or the last try is over--> ARCHIVED
        '------release--------'  by the member, or by time

Acquiring raises the delivery count. A lock that ends, a record that its member releases, and a member that
goes without a word count as a try. A record that nobody gets through is given up after so many tries, and
must not take the others of its batch along: so from about half of the tries on, a batch is given out by ever
smaller parts, alone, and for the last time one record at a time.

Neighbours that are alike are one run, so a partition on which all goes well has one run or two. Every
operation returns other deliveries, and nothing changes: what can't be written down has not happened.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from kio.schema.errors import ErrorCode

from headrace.kafka.share.giving import Acquired, Acquisition, Giving, Span, together
from headrace.kafka.share.runs import NO_DEADLINE, DeliveryState, Part, Run, Runs, changed, joined

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


class AcknowledgeType(IntEnum):
    """What a member says of a record, with the numbers of the protocol."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class Refused(Exception):
    """What a member asks for can't be; nothing has changed."""

    def __init__(self, error_code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error_code = error_code


class Acknowledgement(NamedTuple):
    """What a member says of a range of offsets: one word for all, or one for each."""

    first: int
    last: int
    types: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How often a record is given out, and until when a lock holds that is renewed now."""

    delivery_count_max: int
    renewed_until_ms: int = NO_DEADLINE


@dataclass(frozen=True, slots=True, kw_only=True)
class Deliveries:
    """What became of each offset of one partition in one share group."""

    start_offset: int
    runs: Runs = ()
    """All offsets in flight, without gaps. Neither is the first run settled, nor the last one untouched."""
    state_epoch: int = 0
    """Counts how often somebody has set the position by hand."""
    given_up_count: int = 0
    """How many records were archived, since the broker has started, because their last try was over."""

    @property
    def end_offset(self) -> int:
        """The first offset that nobody has had."""
        return self.runs[-1].last + 1 if self.runs else self.start_offset

    @property
    def next_offset(self) -> int:
        """The first offset that can be given out, or may be once there is a record."""
        return next((run.first for run in self.runs if run.state is DeliveryState.AVAILABLE), self.end_offset)

    @property
    def settled_count(self) -> int:
        """How many offsets in flight are settled."""
        return sum(run.offset_count for run in self.runs if run.is_settled)

    @property
    def available_count(self) -> int:
        """How many offsets in flight can be given out."""
        return sum(run.offset_count for run in self.runs if run.state is DeliveryState.AVAILABLE)

    @property
    def next_deadline_ms(self) -> int | None:
        """When time itself gives something back next."""
        deadline_ms = min((run.deadline_ms for run in self.runs), default=NO_DEADLINE)
        return None if deadline_ms == NO_DEADLINE else deadline_ms

    def has_room(self, in_flight_count_max: int) -> bool:
        """Whether anything may be given out, should there be anything."""
        return self.next_offset < self.end_offset or self.end_offset - self.start_offset < in_flight_count_max

    def acquire(self, spans: Iterable[Span], wanted: Acquisition) -> tuple[Deliveries, tuple[Acquired, ...]]:
        """Give a member what is available among the batches, which lie one behind the other.

        No more of them are asked for than that takes.
        """
        giving = Giving(self.runs, self.start_offset, self.end_offset, wanted)
        for span in spans:
            giving.give(span)
            if giving.is_over:
                break
        return self._with(giving.runs()), tuple(together(giving.acquired, wanted.batch_count))

    def acknowledge(
        self, member_id: str, acknowledgements: Iterable[Acknowledgement], patience: Patience
    ) -> Deliveries:
        """Take in what a member says: all of it, or nothing, and Refused is raised."""
        parts: list[Part[int]] = []
        given_up_count = 0
        for each in acknowledgements:
            _check(each, parts[-1].last if parts else -1)
            self._check_had(each)
            if parts and each.first <= parts[-1].last and each.first >= self.start_offset:
                raise _not_acquired()
            parts += _by_type(each)

        def said(run: Run, kind: int) -> Run:
            nonlocal given_up_count
            if run.state is not DeliveryState.ACQUIRED or run.member_id != member_id:
                raise _not_acquired()
            after = _said(run, kind, patience)
            given_up_count += _given_up(run, kind, after)
            return after

        return self._with(changed(self.runs, parts, said), given_up_count)

    def give_back(self, member_id: str, patience: Patience) -> Deliveries:
        """Let others have what a member has that has gone without a word."""
        return self._after_tries(lambda run: run.member_id == member_id, patience)

    def expire(self, now_ms: int, patience: Patience) -> Deliveries:
        """Take back what has been locked for too long."""
        return self._after_tries(lambda run: run.deadline_ms <= now_ms, patience)

    def advance(self, start_offset: int) -> Deliveries:
        """Forget offsets that the log does not have any more."""
        if start_offset <= self.start_offset:
            return self
        kept = tuple(run.between(start_offset, run.last) for run in self.runs if run.last >= start_offset)
        after = self._with(kept)
        return replace(after, start_offset=max(start_offset, after.start_offset))

    def retreat(self, end_offset: int) -> Deliveries:
        """Forget offsets that the log has never had, or has lost: they may be given to other records."""
        if end_offset >= self.end_offset:
            return self
        kept = tuple(run.between(run.first, end_offset - 1) for run in self.runs if run.first < end_offset)
        after = self._with(kept)
        return replace(after, start_offset=min(end_offset, after.start_offset))

    def moved_to(self, start_offset: int) -> Deliveries:
        """Begin anew somewhere, by hand."""
        return Deliveries(
            start_offset=start_offset, state_epoch=self.state_epoch + 1, given_up_count=self.given_up_count
        )

    def _check_had(self, said: Acknowledgement) -> None:
        """Offsets before the beginning are settled, and nobody minds; those that nobody has had can't be."""
        if not self.runs and said.last >= self.start_offset:
            raise Refused(
                ErrorCode.invalid_record_state,
                "Batch record not found. The request batch offsets are not found in the cache.",
            )
        if said.last >= self.end_offset and self.runs:
            which = "first" if said.first >= self.end_offset else "last"
            raise Refused(
                ErrorCode.invalid_request,
                f"Batch record not found. The {which} offset in request is past acquired records.",
            )

    def _after_tries(self, has_failed: Callable[[Run], bool], patience: Patience) -> Deliveries:
        """After some of what members have has come to nothing."""
        runs, given_up_count = [], 0
        for run in self.runs:
            after = _tried(run, patience) if has_failed(run) else run
            given_up_count += _given_up(run, AcknowledgeType.RELEASE, after)
            runs.append(after)
        return self._with(tuple(runs), given_up_count)

    def _with(self, runs: Runs, given_up_count: int = 0) -> Deliveries:
        """The deliveries with other states; what is settled at their beginning is behind us."""
        first_open = next((run.first for run in runs if not run.is_settled), None)
        settled_until = runs[-1].last + 1 if runs else self.start_offset
        return replace(
            self,
            start_offset=settled_until if first_open is None else first_open,
            runs=joined(runs),
            given_up_count=self.given_up_count + given_up_count,
        )


def _not_acquired() -> Refused:
    return Refused(
        ErrorCode.invalid_record_state, "The offset cannot be acknowledged. The offset is not acquired."
    )


def _said(run: Run, kind: int, patience: Patience) -> Run:
    """What becomes of what a member has, by what it says."""
    if kind == AcknowledgeType.RELEASE:
        return _tried(run, patience)
    if kind == AcknowledgeType.RENEW:
        return run._replace(deadline_ms=patience.renewed_until_ms)
    is_rejected = kind == AcknowledgeType.REJECT
    state = DeliveryState.ARCHIVED if is_rejected else DeliveryState.ACKNOWLEDGED
    return Run(run.first, run.last, state, run.delivery_count)


def _tried(run: Run, patience: Patience) -> Run:
    """After a try that has come to nothing."""
    if run.delivery_count < patience.delivery_count_max:
        return Run(run.first, run.last, DeliveryState.AVAILABLE, run.delivery_count)
    return Run(run.first, run.last, DeliveryState.ARCHIVED, run.delivery_count)


def _given_up(before: Run, kind: int, after: Run) -> int:
    """How many records have been given up: archived, though nobody has rejected them."""
    is_archived = before.state is not after.state and after.state is DeliveryState.ARCHIVED
    return after.offset_count if is_archived and kind == AcknowledgeType.RELEASE else 0


def _check(said: Acknowledgement, last_before: int) -> None:
    """What can't be meant, whatever the state is."""
    count = said.last - said.first + 1
    name = f"the acknowledgement of offsets {said.first} to {said.last}"
    if said.first < 0 or count < 1:
        raise Refused(ErrorCode.invalid_request, f"{name} is of none")
    if said.first < last_before:
        raise Refused(ErrorCode.invalid_request, f"{name} is out of order")
    if len(said.types) not in {1, count}:
        raise Refused(ErrorCode.invalid_request, f"{name} has {len(said.types)} types, not 1 or {count}")
    for kind in said.types:
        if not AcknowledgeType.GAP <= kind <= AcknowledgeType.RENEW:
            raise Refused(ErrorCode.invalid_request, f"{name} has the type {kind}, which there is not")


def _by_type(said: Acknowledgement) -> Iterator[Part[int]]:
    """Ranges of which the same is said."""
    if len(said.types) == 1:
        yield Part(said.first, said.last, said.types[0])
        return
    first = said.first
    for offset, kind in enumerate(said.types, start=said.first):
        if kind != said.types[first - said.first]:
            yield Part(first, offset - 1, said.types[first - said.first])
            first = offset
    yield Part(first, said.last, said.types[-1])
