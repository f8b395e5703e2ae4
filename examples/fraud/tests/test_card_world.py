"""The generated world."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import pytest

from card_reference import alerts, read_profile, read_transaction
from card_world import OFFLINE_S, SKEW_S, Arrival, Arrivals, Limits, World

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def world(seed: int = 1, **settings: Any) -> World:
    return World(**{"seed": seed, "start": NOON, "rate": 100.0, **settings})


def sent(count: int, seed: int = 1, **settings: Any) -> list[Arrival]:
    return list(islice(Arrivals(world(seed, **settings)), count))


def test_the_same_seed_makes_the_same_world() -> None:
    assert sent(2_000, malformed_share=0.1) == sent(2_000, malformed_share=0.1)


def test_another_seed_makes_another_world() -> None:
    assert sent(100, seed=1) != sent(100, seed=2)


def test_records_are_sent_at_a_steady_pace() -> None:
    assert [one.due_s for one in sent(4, rate=50)] == [0.0, 0.02, 0.04, 0.06]


def test_a_change_of_the_rate_counts_from_the_next_record_on() -> None:
    stream = Arrivals(world(rate=10))
    before = [next(stream).due_s for _ in range(2)]
    stream.rate = 100

    assert before + [next(stream).due_s for _ in range(3)] == pytest.approx([0.0, 0.1, 0.2, 0.21, 0.22])


def test_who_falls_behind_leaves_out_what_is_too_old() -> None:
    stream = Arrivals(world(rate=10))
    next(stream)
    stream.catch_up(1.0, behind_s_max=2.0)
    on_time = next(stream).due_s
    stream.catch_up(60.0, behind_s_max=2.0)

    assert (on_time, next(stream).due_s) == (0.1, 60.0)


def test_holders_that_sleep_leave_more_to_those_who_don_t_unless_they_are_sleepless() -> None:
    def busiest(**settings: Any) -> int:
        night = NOON.replace(hour=4)
        arrivals = sent(5_000, start=night, card_count=500, theft_pause_s=1e6, late_share=0, **settings)
        return max(Counter(one.key for one in arrivals).values())

    # Ten uses of each card on average: where each has its turn, none has much more.
    assert busiest(sleepless=True) < 14 < busiest()


def test_a_day_passes_in_a_minute_if_asked_to() -> None:
    last = sent(601, rate=10, speed=1440)[-1]

    assert (last.due_s, last.sent_at) == (60.0, NOON + timedelta(days=1))


def test_a_record_is_a_json_object_of_about_150_bytes_keyed_by_its_card() -> None:
    for one in sent(300):
        fields = json.loads(one.value)
        assert list(fields) == ["tx_id", "card_id", "amount", "at", "merchant", "lat", "lon"]
        assert one.key == fields["card_id"]
        assert 130 <= len(one.value) <= 180


def test_transaction_ids_are_unique_within_a_world_and_between_starts() -> None:
    both = [*sent(3_000, late_share=0.5), *sent(3_000, start=NOON + timedelta(seconds=1))]
    ids = [one.transaction.tx_id for one in both if one.transaction is not None]

    assert len(set(ids)) == 6_000


def late_s(arrivals: list[Arrival]) -> list[float]:
    made = [(one.sent_at, one.transaction.at) for one in arrivals if one.transaction is not None]
    return [(sent_at - at).total_seconds() for sent_at, at in made]


def test_phones_that_were_offline_send_late_and_clocks_go_wrong_by_seconds() -> None:
    late = late_s(sent(20_000, card_count=1_000, late_share=0.1))

    assert -SKEW_S[1] <= min(late) < 0
    assert 60 < max(late) <= OFFLINE_S[1] - SKEW_S[0]
    assert 0.02 < sum(one > 25 for one in late) / len(late) < 0.2


@pytest.mark.parametrize(("rate", "card_count"), [(20, 3_000), (100, 3_000), (100, 1_000)])
@pytest.mark.parametrize("share", [0.05, 0.5])
def test_as_many_payments_come_late_as_were_asked_for_however_often_cards_are_used(
    rate: int, card_count: int, share: float
) -> None:
    seconds, settled_s = 300, OFFLINE_S[1]
    arrivals = sent(rate * seconds, rate=rate, card_count=card_count, late_share=share)
    late = late_s([one for one in arrivals if one.due_s > settled_s])

    assert sum(one >= OFFLINE_S[0] for one in late) / len(late) == pytest.approx(share, rel=0.3, abs=0.01)


def test_late_payments_come_within_half_a_minute_of_the_start() -> None:
    late = late_s(sent(200 * 30, rate=200.0))

    assert sum(one > OFFLINE_S[0] for one in late) > 30


def test_another_share_of_late_payments_counts_from_the_next_one_on() -> None:
    stream = Arrivals(world(rate=100.0, card_count=1_000, late_share=0.5))
    list(islice(stream, 20_000))
    stream.late_share = 0.0
    list(islice(stream, round(OFFLINE_S[1]) * 100))

    assert max(late_s(list(islice(stream, 2_000)))) <= -SKEW_S[0]


def test_nothing_is_late_if_no_phone_is_ever_offline() -> None:
    assert max(late_s(sent(5_000, card_count=1_000, late_share=0.0))) <= -SKEW_S[0]


def test_a_card_has_a_profile_before_it_is_used() -> None:
    known = set()
    for one in sent(2_000, late_share=0.3):
        known |= {profile.card_id for profile in one.profiles}
        assert one.transaction is not None
        assert one.transaction.card_id in known


def test_profiles_change_while_it_runs() -> None:
    versions = Counter(profile.card_id for one in sent(5_000, change_pause_s=1.0) for profile in one.profiles)

    assert max(versions.values()) > 1


def test_other_limits_make_new_profiles_of_all_cards_that_are_known() -> None:
    stream = Arrivals(world())
    cards = {profile.card_id for one in islice(stream, 100) for profile in one.profiles}

    changed = stream.set_limits(Limits(count_max=2))
    later = [profile for one in islice(stream, 100) for profile in one.profiles]

    assert {profile.card_id for profile in changed} == cards
    assert {profile.limits.count_max for profile in (*changed, *later)} == {2}
    assert {profile.since for profile in changed} == {NOON + timedelta(seconds=1)}


def test_honest_holders_sleep_at_night() -> None:
    berlin = 13.41
    hours = Counter(
        (one.transaction.at.hour + 1) % 24
        for one in sent(12_000, rate=200, speed=1440, card_count=2_000)
        if one.transaction is not None and abs(one.transaction.lon - berlin) < 0.2 and not one.is_fraud
    )

    assert hours[12] > 3 * hours[3]


def test_thieves_are_found_and_honest_people_rarely_bothered() -> None:
    arrivals = sent(20_000, rate=200, theft_pause_s=2)
    profiles = [read_profile(profile.encode()) for one in arrivals for profile in one.profiles]
    found = alerts([read_transaction(one.value) for one in arrivals], profiles).values()
    stolen = {one.transaction.card_id for one in arrivals if one.is_fraud and one.transaction is not None}

    assert {alert.rule for alert in found} == {"velocity", "spending", "travel"}
    assert {alert.card_id for alert in found} <= stolen
    assert len({alert.card_id for alert in found}) > len(stolen) / 2


def test_duplicates_and_malformed_records_come_on_request_only() -> None:
    clean = sent(1_000)
    dirty = sent(1_000, duplicate_share=0.1, malformed_share=0.1)

    assert all(one.transaction is not None for one in clean)
    assert Counter(one.value for one in clean).most_common(1)[0][1] == 1
    assert 50 < sum(one.transaction is None for one in dirty) < 150
    ids = Counter(one.transaction.tx_id for one in dirty if one.transaction is not None)
    assert 50 < sum(count - 1 for count in ids.values()) < 150
