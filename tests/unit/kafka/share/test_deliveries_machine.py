"""Deliveries under generated sequences of members and time, against one entry for each offset."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headrace.kafka.share.deliveries import Acknowledgement, Deliveries, Patience, Refused
from headrace.kafka.share.giving import Acquisition, Span
from headrace.kafka.share.records import ShareKey, Stored, decode, encode_key, encode_value
from headrace.kafka.share.runs import DeliveryState

MEMBERS = st.sampled_from(["a", "b", "c"])
OFFSET_COUNT = 40
DELIVERY_COUNT_MAX = 4
SUSPECT_FROM = 2
"""After so many tries, records are given out by parts of their batch, and alone."""
LOCK_MS = 10
BATCH = 4
"""How many offsets a batch of the log has."""


@dataclass
class Offset:
    """What became of one offset, told as plainly as can be."""

    state: DeliveryState = DeliveryState.AVAILABLE
    count: int = 0
    member: str = ""
    deadline_ms: int = 0

    @property
    def is_settled(self) -> bool:
        return self.state in {DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED}

    def fail(self) -> None:
        """A try has come to nothing."""
        over = self.count >= DELIVERY_COUNT_MAX
        self.state = DeliveryState.ARCHIVED if over else DeliveryState.AVAILABLE


class DeliveriesMachine(RuleBasedStateMachine):
    """Members that are given records, say something of them or not, and go."""

    def __init__(self) -> None:
        super().__init__()
        self.deliveries = Deliveries(start_offset=0)
        self.offsets = [Offset() for _ in range(OFFSET_COUNT)]
        self.deleted_below = 0
        self.now_ms = 0

    @rule(
        member=MEMBERS,
        count=st.integers(1, 10),
        is_exact=st.booleans(),
        batch_count=st.integers(1, 9),
        in_flight=st.sampled_from([1, 3, 6, OFFSET_COUNT]),
    )
    def acquire(self, member: str, count: int, is_exact: bool, batch_count: int, in_flight: int) -> None:
        begin = self.deliveries.next_offset
        spans = [
            Span(max(first, begin), first + BATCH - 1)
            for first in range(0, OFFSET_COUNT, BATCH)
            if first + BATCH > begin
        ]
        wanted = Acquisition(
            member_id=member,
            deadline_ms=self.now_ms + LOCK_MS,
            record_count_max=count,
            is_exact=is_exact,
            batch_count=batch_count,
            in_flight_count_max=in_flight,
            delivery_count_max=DELIVERY_COUNT_MAX,
        )
        expected = self._expected(spans, count, is_exact=is_exact, in_flight=in_flight)
        may_come = self.deliveries.next_offset < self.deliveries.end_offset
        self.deliveries, acquired = self.deliveries.acquire(spans, wanted)
        assert acquired or not may_come, "what has come back can be given out, whatever is in flight"
        given = [
            (number, each.delivery_count) for each in acquired for number in range(each.first, each.last + 1)
        ]
        assert given == expected
        for number, delivery_count in given:
            self.offsets[number] = Offset(
                DeliveryState.ACQUIRED, delivery_count, member, self.now_ms + LOCK_MS
            )

    def _expected(
        self, spans: list[Span], count: int, *, is_exact: bool, in_flight: int
    ) -> list[tuple[int, int]]:
        """Offset by offset: the first ones, or some of those that have failed often."""
        expected: list[tuple[int, int]] = []
        end = self.deliveries.end_offset
        for span in spans:
            if len(expected) >= count:
                break
            is_full = end - self.deliveries.start_offset >= in_flight
            last = min(span.last, end - 1) if is_full else span.last
            end = max(end, last + 1)
            for number in range(span.first, last + 1):
                offset = self.offsets[number]
                if offset.state is not DeliveryState.AVAILABLE or (is_exact and len(expected) >= count):
                    continue
                if offset.count < SUSPECT_FROM:
                    expected.append((number, offset.count + 1))
                    continue
                return expected or self._part_of_suspects(number, span.last, count if is_exact else BATCH)
        return expected

    def _part_of_suspects(self, first: int, last: int, count: int) -> list[tuple[int, int]]:
        failed = self.offsets[first].count
        alike = 0
        for offset in self.offsets[first : last + 1]:
            if (offset.state, offset.count) != (DeliveryState.AVAILABLE, failed):
                break
            alike += 1
        part = 1 if failed + 1 == DELIVERY_COUNT_MAX else max(alike // 2, 1)
        return [(number, failed + 1) for number in range(first, first + min(part, count))]

    @rule(
        member=MEMBERS,
        first=st.integers(0, OFFSET_COUNT - 1),
        kinds=st.lists(st.integers(0, 4), min_size=1, max_size=6),
        is_one=st.booleans(),
    )
    def acknowledge(self, member: str, first: int, kinds: list[int], is_one: bool) -> None:
        last = first + len(kinds) - 1
        types = (kinds[0],) if is_one else tuple(kinds)
        numbers = [each for each in range(first, last + 1) if each >= self.deliveries.start_offset]
        is_right = last < self.deliveries.end_offset and all(
            self.offsets[each].state is DeliveryState.ACQUIRED and self.offsets[each].member == member
            for each in numbers
        )
        before = self.deliveries
        patience = Patience(delivery_count_max=DELIVERY_COUNT_MAX, renewed_until_ms=self.now_ms + 2 * LOCK_MS)
        try:
            self.deliveries = before.acknowledge(member, [Acknowledgement(first, last, types)], patience)
        except Refused:
            assert not is_right or not numbers
            assert self.deliveries is before
            return
        assert is_right or not numbers
        for number in numbers:
            self._say(self.offsets[number], types[0] if is_one else types[number - first])

    def _say(self, offset: Offset, kind: int) -> None:
        if kind == 2:
            offset.fail()
        elif kind == 4:
            offset.deadline_ms = self.now_ms + 2 * LOCK_MS
        else:
            offset.state = DeliveryState.ARCHIVED if kind == 3 else DeliveryState.ACKNOWLEDGED

    @rule(member=MEMBERS)
    def give_back(self, member: str) -> None:
        self.deliveries = self.deliveries.give_back(member, Patience(delivery_count_max=DELIVERY_COUNT_MAX))
        for offset in self.offsets:
            if offset.state is DeliveryState.ACQUIRED and offset.member == member:
                offset.fail()

    @rule(ms=st.integers(1, 15))
    def wait(self, ms: int) -> None:
        self.now_ms += ms
        patience = Patience(delivery_count_max=DELIVERY_COUNT_MAX)
        self.deliveries = self.deliveries.expire(self.now_ms, patience)
        for offset in self.offsets:
            if offset.state is DeliveryState.ACQUIRED and offset.deadline_ms <= self.now_ms:
                offset.fail()

    @rule(count=st.integers(1, 5))
    def delete(self, count: int) -> None:
        self.deleted_below = min(self.deleted_below + count, OFFSET_COUNT)
        self.deliveries = self.deliveries.advance(self.deleted_below)
        for offset in self.offsets[: self.deleted_below]:
            offset.state = DeliveryState.ARCHIVED

    @rule()
    def restart(self) -> None:
        """Locks are gone; all else is as it was."""
        key = ShareKey("g", UUID(int=1), 0)
        value = encode_value(Stored(key, self.deliveries, 1, 5), now_ms=7)
        restored = decode(encode_key(key), value)
        assert restored is not None
        assert restored.key == key
        assert restored.deliveries is not None
        self.deliveries = restored.deliveries
        for offset in self.offsets:
            if offset.state is DeliveryState.ACQUIRED:
                offset.state = DeliveryState.AVAILABLE

    @invariant()
    def is_as_told_plainly(self) -> None:
        deliveries = self.deliveries
        open_offsets = [number for number, offset in enumerate(self.offsets) if not offset.is_settled]
        assert deliveries.start_offset == (open_offsets[0] if open_offsets else deliveries.end_offset)
        touched = [number for number, offset in enumerate(self.offsets) if offset.count or offset.is_settled]
        assert deliveries.end_offset == max([deliveries.start_offset, *(each + 1 for each in touched)])
        position = deliveries.start_offset
        for run in deliveries.runs:
            assert run.first == position
            for number in range(run.first, run.last + 1):
                offset = self.offsets[number]
                assert run.state is offset.state
                if not offset.is_settled:
                    assert run.delivery_count == offset.count
                if run.state is DeliveryState.ACQUIRED:
                    assert (run.member_id, run.deadline_ms) == (offset.member, offset.deadline_ms)
            position = run.last + 1
        assert position == deliveries.end_offset

    @invariant()
    def neighbours_differ(self) -> None:
        runs = self.deliveries.runs
        assert not any(one.is_like(other) for one, other in pairwise(runs))


TestDeliveries = DeliveriesMachine.TestCase
TestDeliveries.settings = settings(max_examples=300, stateful_step_count=40, deadline=None)
