"""What became of each offset of a partition in a share group, case by case."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from headrace.kafka.share.deliveries import Acknowledgement, AcknowledgeType, Deliveries, Patience, Refused
from headrace.kafka.share.giving import Acquired, Acquisition, Span
from headrace.kafka.share.runs import DeliveryState

PATIENCE = Patience(delivery_count_max=3, renewed_until_ms=900)
PATIENCE_OF_FIVE = Patience(delivery_count_max=5)
ACCEPT, RELEASE, REJECT, RENEW, GAP = (
    (AcknowledgeType.ACCEPT,),
    (AcknowledgeType.RELEASE,),
    (AcknowledgeType.REJECT,),
    (AcknowledgeType.RENEW,),
    (AcknowledgeType.GAP,),
)


def wanted(
    member_id: str = "m",
    *,
    record_count_max: int = 1_000,
    is_exact: bool = False,
    batch_count: int = 1_000,
    in_flight_count_max: int = 1_000,
    deadline_ms: int = 100,
    delivery_count_max: int = 6,
) -> Acquisition:
    return Acquisition(
        member_id=member_id,
        deadline_ms=deadline_ms,
        record_count_max=record_count_max,
        is_exact=is_exact,
        batch_count=batch_count,
        in_flight_count_max=in_flight_count_max,
        delivery_count_max=delivery_count_max,
    )


def spans(*ends: tuple[int, int]) -> list[Span]:
    return [Span(first, last) for first, last in ends]


def after_acquiring(first: int, last: int, member_id: str = "m", start_offset: int = 0) -> Deliveries:
    deliveries, acquired = Deliveries(start_offset=start_offset).acquire(
        spans((first, last)), wanted(member_id)
    )
    assert acquired == (Acquired(first, last, 1),)
    return deliveries


def test_batches_are_given_out_whole_until_there_are_enough_records() -> None:
    deliveries, acquired = Deliveries(start_offset=5).acquire(
        spans((5, 9), (10, 14), (15, 19)), wanted(record_count_max=6)
    )
    assert acquired == (Acquired(5, 14, 1),)
    assert (deliveries.start_offset, deliveries.end_offset, deliveries.next_offset) == (5, 15, 15)


def test_no_more_than_so_many_are_given_out_where_that_is_asked_for() -> None:
    deliveries, acquired = Deliveries(start_offset=5).acquire(
        spans((5, 9), (10, 14)), wanted(record_count_max=6, is_exact=True)
    )
    assert acquired == (Acquired(5, 10, 1),)
    assert deliveries.next_offset == 11
    assert deliveries.end_offset == 11, "what nobody has had is not in flight"


def test_a_member_is_told_of_batches_of_about_the_size_that_it_wants() -> None:
    _, acquired = Deliveries(start_offset=0).acquire(
        spans((0, 3), (4, 5), (6, 9), (10, 11)), wanted(batch_count=5)
    )
    assert acquired == (Acquired(0, 5, 1), Acquired(6, 11, 1))


def test_nobody_is_given_what_another_has() -> None:
    deliveries, acquired = after_acquiring(0, 9).acquire(spans((0, 9)), wanted("n"))
    assert acquired == ()
    assert deliveries == after_acquiring(0, 9)


def test_what_is_accepted_is_behind_us() -> None:
    deliveries = after_acquiring(0, 9).acknowledge("m", [Acknowledgement(0, 4, ACCEPT)], PATIENCE)
    assert (deliveries.start_offset, deliveries.end_offset) == (5, 10)
    deliveries = deliveries.acknowledge("m", [Acknowledgement(5, 9, ACCEPT)], PATIENCE)
    assert deliveries == Deliveries(start_offset=10)


def test_what_is_accepted_behind_something_that_is_not_waits_for_it() -> None:
    deliveries = after_acquiring(0, 9).acknowledge("m", [Acknowledgement(5, 9, ACCEPT)], PATIENCE)
    assert (deliveries.start_offset, deliveries.settled_count) == (0, 5)


def test_what_is_released_is_given_out_again_and_counted() -> None:
    deliveries = after_acquiring(0, 9).acknowledge(
        "m", [Acknowledgement(0, 1, ACCEPT), Acknowledgement(2, 3, RELEASE)], PATIENCE
    )
    assert deliveries.next_offset == 2
    _, acquired = deliveries.acquire(spans((0, 9), (10, 10)), wanted("n"))
    assert acquired == (Acquired(2, 3, 2), Acquired(10, 10, 1))


def test_there_is_one_word_for_each_offset_or_one_for_all() -> None:
    each = tuple(kind for (kind,) in (ACCEPT, RELEASE, RELEASE, REJECT, GAP))
    deliveries = after_acquiring(0, 4).acknowledge("m", [Acknowledgement(0, 4, each)], PATIENCE)
    assert [(run.first, run.last, run.state) for run in deliveries.runs] == [
        (1, 2, DeliveryState.AVAILABLE),
        (3, 3, DeliveryState.ARCHIVED),
        (4, 4, DeliveryState.ACKNOWLEDGED),
    ]


def test_a_record_is_given_up_after_so_many_tries_and_that_is_counted() -> None:
    deliveries = Deliveries(start_offset=0)
    for number in range(1, 4):
        deliveries, acquired = deliveries.acquire(spans((0, 0)), wanted(delivery_count_max=3))
        assert acquired == (Acquired(0, 0, number),)
        deliveries = deliveries.acknowledge("m", [Acknowledgement(0, 0, RELEASE)], PATIENCE)
    assert deliveries == Deliveries(start_offset=1, given_up_count=1)


def given_while_one_fails(
    count: int, poison: int, delivery_count_max: int
) -> tuple[list[Acquired], Deliveries]:
    """What is given out of a batch if whoever gets one of its records fails with all that it has."""
    told: list[Acquired] = []
    deliveries = Deliveries(start_offset=0)
    patience = Patience(delivery_count_max=delivery_count_max)
    while True:
        batches = spans((deliveries.start_offset, count - 1)) if deliveries.start_offset < count else []
        deliveries, acquired = deliveries.acquire(batches, wanted(delivery_count_max=delivery_count_max))
        if not acquired:
            return told, deliveries
        told += acquired
        for each in acquired:
            kind = RELEASE if each.first <= poison <= each.last else ACCEPT
            deliveries = deliveries.acknowledge("m", [Acknowledgement(each.first, each.last, kind)], patience)


@pytest.mark.parametrize("delivery_count_max", [3, 5, 10])
def test_a_record_that_nobody_gets_through_is_given_up_alone(delivery_count_max: int) -> None:
    _, deliveries = given_while_one_fails(20, poison=7, delivery_count_max=delivery_count_max)
    assert deliveries == Deliveries(start_offset=20, given_up_count=1)


def test_what_fails_again_and_again_is_given_out_by_ever_smaller_parts() -> None:
    told, _ = given_while_one_fails(20, poison=0, delivery_count_max=10)
    assert told[:10] == [
        *(Acquired(0, 19, number) for number in range(1, 6)),
        Acquired(0, 9, 6),
        Acquired(0, 4, 7),
        Acquired(0, 1, 8),
        Acquired(0, 0, 9),
        Acquired(0, 0, 10),
    ]


def test_what_fails_again_and_again_goes_with_nothing_else() -> None:
    deliveries = Deliveries(start_offset=0)
    for _ in range(3):
        deliveries, _ = deliveries.acquire(spans((0, 3)), wanted(delivery_count_max=5))
        deliveries = deliveries.expire(100, PATIENCE_OF_FIVE)
    deliveries, acquired = deliveries.acquire(spans((0, 3), (4, 5)), wanted(delivery_count_max=5))
    assert acquired == (Acquired(0, 1, 4),)
    fresh = Deliveries(start_offset=0).acquire(spans((0, 1)), wanted())[0].expire(100, PATIENCE_OF_FIVE)
    assert fresh.acquire(spans((0, 1), (2, 3)), wanted(delivery_count_max=5))[1] == (
        Acquired(0, 1, 2),
        Acquired(2, 3, 1),
    )


def test_what_a_member_rejects_is_not_counted_as_given_up() -> None:
    deliveries = after_acquiring(0, 1).acknowledge("m", [Acknowledgement(0, 1, REJECT)], PATIENCE)
    assert deliveries == Deliveries(start_offset=2)


def test_a_lock_that_ends_is_a_try() -> None:
    deliveries = after_acquiring(0, 1)
    assert deliveries.next_deadline_ms == 100
    assert deliveries.expire(99, PATIENCE) == deliveries
    expired = deliveries.expire(100, PATIENCE)
    assert expired.next_deadline_ms is None
    assert expired.acquire(spans((0, 1)), wanted("n"))[1] == (Acquired(0, 1, 2),)
    assert deliveries.expire(100, Patience(delivery_count_max=1)) == Deliveries(
        start_offset=2, given_up_count=2
    )


def test_a_lock_that_is_renewed_holds_longer() -> None:
    deliveries = after_acquiring(0, 3).acknowledge("m", [Acknowledgement(1, 2, RENEW)], PATIENCE)
    expired = deliveries.expire(500, PATIENCE)
    assert expired.acquire(spans((0, 3)), wanted("n"))[1] == (Acquired(0, 0, 2), Acquired(3, 3, 2))


def test_a_member_that_goes_without_a_word_has_tried() -> None:
    deliveries, _ = after_acquiring(0, 1).acquire(spans((2, 3)), wanted("n"))
    deliveries = deliveries.give_back("m", PATIENCE)
    assert deliveries.acquire(spans((0, 3)), wanted("o"))[1] == (Acquired(0, 1, 2),)
    assert after_acquiring(0, 1).give_back("m", Patience(delivery_count_max=1)) == Deliveries(
        start_offset=2, given_up_count=2
    )


def test_what_nobody_is_to_see_is_passed_over() -> None:
    batches = [Span(0, 1, is_hidden=True), Span(2, 3), Span(4, 4, is_hidden=True)]
    deliveries, acquired = Deliveries(start_offset=0).acquire(batches, wanted())
    assert acquired == (Acquired(2, 3, 1),)
    assert (deliveries.start_offset, deliveries.end_offset) == (2, 5)
    hidden, acquired = Deliveries(start_offset=0).acquire(batches[:1], wanted())
    assert (hidden, acquired) == (Deliveries(start_offset=2), ())


def test_what_the_log_has_deleted_is_forgotten() -> None:
    deliveries, _ = after_acquiring(0, 4).acquire(spans((5, 9)), wanted("n"))
    assert deliveries.advance(0) == deliveries
    deliveries = deliveries.advance(7)
    assert (deliveries.start_offset, deliveries.end_offset) == (7, 10)
    assert deliveries.advance(20) == Deliveries(start_offset=20)
    settled = deliveries.acknowledge("n", [Acknowledgement(8, 9, ACCEPT)], PATIENCE)
    assert settled.advance(8) == Deliveries(start_offset=10), "nothing settled is left at the beginning"


def test_what_the_log_has_lost_is_forgotten() -> None:
    deliveries = after_acquiring(0, 9)
    assert deliveries.retreat(10) is deliveries
    assert deliveries.retreat(4) == after_acquiring(0, 3)
    assert deliveries.retreat(0) == Deliveries(start_offset=0)
    assert Deliveries(start_offset=9).retreat(4) == Deliveries(start_offset=4)


def test_no_more_than_so_many_offsets_are_in_flight_but_for_the_end_of_a_batch() -> None:
    limited = wanted(in_flight_count_max=6)
    deliveries, acquired = Deliveries(start_offset=0).acquire(spans((0, 3), (4, 7), (8, 9)), limited)
    assert acquired == (Acquired(0, 7, 1),)
    assert not deliveries.has_room(6)
    assert deliveries.acquire(spans((8, 9)), limited)[1] == ()
    deliveries = deliveries.acknowledge("m", [Acknowledgement(5, 5, RELEASE)], PATIENCE)
    assert deliveries.has_room(6), "what has come back can be given out"
    assert deliveries.acquire(spans((4, 7), (8, 9)), limited)[1] == (Acquired(5, 5, 2),)


def test_what_has_come_back_of_a_batch_that_is_in_flight_in_part_is_given_out_though_no_more_may_be() -> None:
    limited = wanted(record_count_max=5, is_exact=True, in_flight_count_max=5)
    deliveries, acquired = Deliveries(start_offset=0).acquire(spans((0, 9)), limited)
    assert acquired == (Acquired(0, 4, 1),)
    deliveries = deliveries.acknowledge("m", [Acknowledgement(0, 4, RELEASE)], PATIENCE)
    assert deliveries.acquire(spans((0, 9)), limited)[1] == (Acquired(0, 4, 2),)


def test_no_more_batches_are_looked_at_than_are_given_out() -> None:
    batches = iter(spans((0, 1), (2, 3), (4, 5), (6, 7)))
    Deliveries(start_offset=0).acquire(batches, wanted(record_count_max=4))
    assert next(batches).first >= 6


def test_thousands_of_offsets_of_which_each_has_its_own_word_take_one_pass() -> None:
    count = 50_000
    each = tuple(AcknowledgeType.ACCEPT if number % 2 else AcknowledgeType.RELEASE for number in range(count))
    deliveries = after_acquiring(0, count - 1)
    deliveries = deliveries.acknowledge("m", [Acknowledgement(0, count - 1, each)], PATIENCE)
    assert (deliveries.start_offset, deliveries.settled_count) == (0, count // 2)
    several, acquired = deliveries.acquire(
        spans(*((number, number) for number in range(count))),
        wanted(record_count_max=count, in_flight_count_max=1),
    )
    assert len(acquired) == count // 2
    assert several.next_offset == count


def test_a_position_that_is_moved_by_hand_begins_anew() -> None:
    moved = after_acquiring(0, 9).moved_to(4)
    assert moved == Deliveries(start_offset=4, state_epoch=1)


@pytest.mark.parametrize(
    ("said", "error_code", "why"),
    [
        ([Acknowledgement(3, 2, ACCEPT)], ErrorCode.invalid_request, "of none"),
        ([Acknowledgement(-1, 2, ACCEPT)], ErrorCode.invalid_request, "of none"),
        (
            [Acknowledgement(3, 4, ACCEPT), Acknowledgement(0, 1, ACCEPT)],
            ErrorCode.invalid_request,
            "out of order",
        ),
        ([Acknowledgement(0, 2, ())], ErrorCode.invalid_request, "0 types"),
        ([Acknowledgement(0, 2, ACCEPT + RELEASE)], ErrorCode.invalid_request, "2 types, not 1 or 3"),
        ([Acknowledgement(0, 2, (9,))], ErrorCode.invalid_request, "type 9"),
        ([Acknowledgement(0, 2, (-1,))], ErrorCode.invalid_request, "type -1"),
        ([Acknowledgement(10, 12, ACCEPT)], ErrorCode.invalid_request, "first offset in request is past"),
        ([Acknowledgement(8, 12, ACCEPT)], ErrorCode.invalid_request, "last offset in request is past"),
        (
            [Acknowledgement(0, 2, ACCEPT), Acknowledgement(2, 4, ACCEPT)],
            ErrorCode.invalid_record_state,
            "not acquired",
        ),
    ],
)
def test_what_can_not_be_meant_is_refused_as_a_whole(
    said: list[Acknowledgement], error_code: ErrorCode, why: str
) -> None:
    deliveries = after_acquiring(0, 9)
    with pytest.raises(Refused, match=why) as refused:
        deliveries.acknowledge("m", said, PATIENCE)
    assert refused.value.error_code is error_code
    assert deliveries == after_acquiring(0, 9)


@pytest.mark.parametrize("member_id", ["n", ""])
def test_nobody_speaks_for_another(member_id: str) -> None:
    with pytest.raises(Refused, match="not acquired"):
        after_acquiring(0, 9).acknowledge(member_id, [Acknowledgement(0, 0, ACCEPT)], PATIENCE)


def test_whoever_is_late_is_told_so() -> None:
    expired = after_acquiring(0, 9).expire(100, PATIENCE)
    with pytest.raises(Refused, match="not acquired"):
        expired.acknowledge("m", [Acknowledgement(0, 0, ACCEPT)], PATIENCE)


def test_of_what_was_never_given_out_nothing_can_be_said() -> None:
    with pytest.raises(Refused, match="not found in the cache") as refused:
        Deliveries(start_offset=3).acknowledge("m", [Acknowledgement(3, 3, ACCEPT)], PATIENCE)
    assert refused.value.error_code is ErrorCode.invalid_record_state


def test_nobody_minds_what_is_said_of_what_is_behind_us() -> None:
    deliveries = after_acquiring(5, 9, start_offset=5)
    assert deliveries.acknowledge("m", [Acknowledgement(0, 4, ACCEPT)], PATIENCE) == deliveries
    assert Deliveries(start_offset=5).acknowledge(
        "m", [Acknowledgement(0, 4, ACCEPT)], PATIENCE
    ) == Deliveries(start_offset=5)
