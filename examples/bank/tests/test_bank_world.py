"""What customers ask for, without a store."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise

from bank_accounts import Close, Open, Withdraw
from bank_transfers import RequestTransfer
from bank_world import World, history

SINCE = datetime(2026, 1, 1, tzinfo=UTC)
UNTIL = datetime(2026, 7, 1, tzinfo=UTC)


def test_the_same_seed_makes_the_same_history_and_another_seed_another() -> None:
    one, again, other = (list(history(seed, since=SINCE, until=UNTIL, count=300)) for seed in (7, 7, 8))
    assert one == again
    assert one != other


def test_each_wish_has_an_id_of_its_own_also_in_another_world_of_the_same_seed() -> None:
    past = [wish.command_id for wish in history(7, since=SINCE, until=UNTIL, count=500)]
    world = World(7, "live")
    live = [wish.command_id for _ in range(500) for wish in world.next(UNTIL)]
    assert len({*past, *live}) == len(past) + len(live)


def test_a_history_begins_with_the_accounts_and_stays_within_its_time() -> None:
    wishes = list(history(7, since=SINCE, until=UNTIL, count=400))
    opened = [wish.stream for wish in wishes if isinstance(wish.command, Open)]
    assert len(opened) == len(set(opened))
    asked = {wish.stream for wish in wishes if wish.stream.startswith("account-")}
    assert asked <= set(opened)
    assert all(SINCE <= wish.at <= UNTIL for wish in wishes)
    moments = [wish.at for wish in wishes if isinstance(wish.command, RequestTransfer)]
    assert all(one <= next_one for one, next_one in pairwise(moments))


def test_a_history_has_what_the_read_models_look_for() -> None:
    wishes = list(history(7, since=SINCE, until=UNTIL, count=1_000))
    (closed,) = [wish.stream for wish in wishes if isinstance(wish.command, Close)]
    transfers = [wish.command for wish in wishes if isinstance(wish.command, RequestTransfer)]
    assert any(transfer.target == closed for transfer in transfers)
    assert not any(transfer.source == closed for transfer in transfers)
    withdrawals = [wish.command for wish in wishes if isinstance(wish.command, Withdraw)]
    assert any(each.cents >= 5_000_00 for each in withdrawals)
