"""Changes that wait until their transaction is whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from headrace.streams.changelog.transactions import GONE_MAX, AlignTransactions

PLACE = pa.struct([("topic", pa.string()), ("partition", pa.int32())])
SCHEMA = pa.schema(
    [
        ("name", pa.string()),
        ("_transaction", pa.string()),
        ("_order", pa.int64()),
        ("_end_count", pa.int64()),
        ("_role", pa.string()),
        ("_came", pa.timestamp("us", "UTC")),
        ("_kafka", PLACE),
    ]
)
SECOND_US = 1_000_000


class Event(NamedTuple):
    """A change, or the end of a transaction if it has a count."""

    transaction: str | None
    name: str | None = None
    order: int | None = None
    topic: str = "orders"
    change_count: int | None = None


def table(events: Sequence[Event], second: int, own: str | None) -> pa.Table:
    made = []
    for each in events:
        role = "end" if each.change_count is not None else "change" if own in {None, each.topic} else "other"
        made.append(
            {
                "name": each.name if role == "change" else None,
                "_transaction": each.transaction,
                "_order": each.order,
                "_end_count": each.change_count,
                "_role": role,
                "_came": second * SECOND_US,
                "_kafka": {"topic": "shop.transaction" if role == "end" else each.topic, "partition": 0},
            }
        )
    return pa.Table.from_pylist(made, SCHEMA)


class Aligned:
    """Tables that are aligned, or those of one of them; `unaligned` is what the last step has counted."""

    def __init__(self, bucket: Callable[..., Any], own: str | None = None, held_max: int = 1_000) -> None:
        self._stepped = bucket(AlignTransactions(patience_us=10 * SECOND_US, held_max=held_max))
        self._own = own
        self.unaligned = 0

    def step(self, *events: Event, second: int = 0, crashes: bool = False) -> list[str]:
        """The names of what is let go."""
        rows = self._stepped.step(table(events, second, self._own), crashes=crashes)
        self.unaligned = self._stepped.last.counts.get("unaligned", 0)
        return [row["name"] for row in rows]

    @property
    def held_count(self) -> int:
        held: int = self._stepped.last.state["held"].num_rows
        return held

    @property
    def end_count(self) -> int:
        ends: int = self._stepped.last.state["ended"].num_rows
        return ends

    @property
    def ends_given_up(self) -> int:
        count: int = self._stepped.last.counts.get("ends_given_up", 0)
        return count


def end(transaction: str, count: int) -> Event:
    return Event(transaction, change_count=count)


def test_changes_wait_for_all_of_their_transaction_and_for_those_before_it(
    bucket: Callable[..., Any],
) -> None:
    orders = Aligned(bucket, "orders")
    assert orders.step(Event(None, "snapshot")) == ["snapshot"]
    assert orders.step(Event("1", "a1"), end("1", 2)) == []
    # The second is whole, and still waits for the first, as does what is behind them in their partition.
    assert orders.step(Event("2", "b1"), end("2", 1), Event(None, "later")) == []
    # What another table has of it counts, and is not given.
    assert orders.step(Event("1", topic="products"), Event(None, topic="products")) == ["a1", "b1", "later"]
    assert orders.step(Event("3", "c1")) == []
    assert orders.step(end("3", 1)) == ["c1"]
    # One that has changed nothing that is read.
    assert orders.step(end("4", 0), Event("5", "d1"), end("5", 1)) == ["d1"]
    assert orders.unaligned == 0


def test_what_is_sent_twice_counts_once_and_is_not_held_when_its_transaction_is_gone(
    bucket: Callable[..., Any],
) -> None:
    tables = Aligned(bucket)
    assert tables.step(Event("1", "a1", 1), Event("1", "a1 again", 1), end("1", 2)) == []
    assert tables.step(Event("1", "a2", 2), end("1", 2)) == ["a1", "a1 again", "a2"]
    assert tables.step(Event("1", "a2 again", 2), end("1", 2), Event("2", "b"), end("2", 1)) == [
        "b",
        "a2 again",
    ]
    assert (tables.unaligned, tables.held_count) == (0, 0)


def test_a_transaction_that_never_gets_whole_holds_others_for_a_time_and_not_for_ever(
    bucket: Callable[..., Any],
) -> None:
    tables = Aligned(bucket)
    assert tables.step(Event("1", "a"), end("1", 2), second=0) == []
    assert tables.step(Event("2", "b"), end("2", 1), Event("3", "c"), end("3", 2), second=9) == []
    # Once its time is over it goes, those that waited for it go on, and the next has a time of its own.
    assert tables.step(Event("4", "d", topic="products"), end("4", 1), second=11) == ["a", "b"]
    assert tables.unaligned == 1
    # The rest of it comes late, and is let go when nothing is held in front of it.
    assert tables.step(Event("1", "rest"), second=12) == []
    assert tables.step(Event("3", "c2"), second=13) == ["c", "c2", "d", "rest"]
    assert tables.unaligned == 1


def test_more_changes_than_are_to_be_held_are_let_go_by_the_oldest_transactions(
    bucket: Callable[..., Any],
) -> None:
    tables = Aligned(bucket, held_max=2)
    assert tables.step(Event("1", "a"), end("1", 9), Event("2", "b")) == []
    assert tables.step(Event("2", "c"), end("2", 2)) == ["a", "b", "c"]
    assert (tables.unaligned, tables.held_count) == (1, 0)


def test_a_transaction_without_an_end_is_let_go_before_the_later_one_behind_it(
    bucket: Callable[..., Any],
) -> None:
    tables = Aligned(bucket)
    # The ends before the second are not read any more, or not yet.
    assert tables.step(Event("1", "old"), Event("1", "far", topic="products"), Event("2", "new")) == []
    assert tables.step(end("2", 1)) == ["new", "old", "far"]
    assert tables.unaligned == 2
    # An end that comes after all changes nothing.
    assert tables.step(end("1", 2), Event("3", "c"), end("3", 1)) == ["c"]


def test_changes_that_no_end_knows_of_are_told(bucket: Callable[..., Any]) -> None:
    tables = Aligned(bucket)
    # As where the names of tables and topics differ: the end has none of these tables.
    assert tables.step(Event("1", "a"), end("1", 0)) == ["a"]
    assert tables.unaligned == 1
    assert tables.step(end("2", 0)) == []
    assert tables.step(Event("2", "b")) == ["b"]
    assert tables.unaligned == 1


def test_an_end_of_which_no_change_comes_is_given_up_and_told(bucket: Callable[..., Any]) -> None:
    tables = Aligned(bucket)
    assert tables.step(end("1", 1), end("2", 2), second=0) == []
    assert tables.step(Event("2", "b"), end("3", 1), second=9) == []
    assert (tables.end_count, tables.ends_given_up) == (3, 0)
    # The first is over; the second, of which a change has come, waits as long as that.
    assert tables.step(Event("3", "c"), second=11) == []
    assert (tables.end_count, tables.ends_given_up) == (2, 1)
    assert tables.step(Event("2", "b2"), second=12) == ["b", "b2", "c"]
    assert (tables.end_count, tables.ends_given_up, tables.unaligned) == (0, 0, 0)
    # What comes of it after all is not held.
    assert tables.step(Event("1", "a"), second=13) == ["a"]
    assert tables.unaligned == 1


def test_no_more_ends_are_kept_than_changes_are_held(bucket: Callable[..., Any]) -> None:
    tables = Aligned(bucket, held_max=3)
    assert tables.step(Event("1", "a"), end("1", 2)) == []
    assert tables.step(*(end(str(number), 1) for number in range(2, 7))) == ["a"]
    assert (tables.end_count, tables.ends_given_up, tables.unaligned) == (3, 2, 1)
    assert tables.step(*(Event(str(number), str(number)) for number in (4, 5, 6))) == ["4", "5", "6"]
    assert (tables.end_count, tables.unaligned) == (0, 0)


def test_transactions_that_are_gone_are_not_known_for_ever(bucket: Callable[..., Any]) -> None:
    tables = Aligned(bucket)
    tables.step(*(end(str(number), 0) for number in range(GONE_MAX + 5)))
    gone = tables._stepped.last.state["gone"]
    assert gone["_transaction"].to_pylist() == [str(number) for number in range(5, GONE_MAX + 5)]


@pytest.mark.parametrize("seed", range(30))
def test_whole_transactions_come_in_order_however_topics_are_read(
    bucket: Callable[..., Any], seed: int
) -> None:
    random = Random(seed)
    topics: dict[str, list[Event]] = {"orders": [], "products": [], "ends": []}
    expected: list[list[str]] = []
    for number in range(12):
        count = random.randrange(4)
        for order in range(count):
            topic = random.choice(["orders", "products"])
            change = Event(str(number), f"{number}.{order}", order, topic)
            topics[topic] += [change] * random.choice([1, 1, 1, 2])
        topics["ends"].append(end(str(number), count))
        expected.append([f"{number}.{order}" for order in range(count)])
    sides = {own: Aligned(bucket, own) for own in ("orders", "products")}
    seen: list[str] = []
    while any(topics.values()):
        batch: list[Event] = []
        for events in topics.values():
            count = random.randrange(4)
            batch += events[:count]
            del events[:count]
        for side in sides.values():
            seen += side.step(*batch, crashes=random.random() < 0.3)
            assert side.unaligned == 0
        # After each batch both tables together have seen some transactions, the first ones, and all of each.
        numbers = {int(name.partition(".")[0]) for name in seen}
        first = [name for names in expected[: max(numbers, default=-1) + 1] for name in names]
        assert set(seen) == set(first)
    assert set(seen) == {name for names in expected for name in names}


@pytest.mark.parametrize("seed", range(30))
def test_nothing_is_lost_or_changes_its_order_though_ends_and_changes_are_missing(
    bucket: Callable[..., Any], seed: int
) -> None:
    random = Random(seed)
    topics: dict[str, list[Event]] = {"orders": [], "products": [], "ends": []}
    lost: set[str] = set()
    for number in range(15):
        count = random.randrange(1, 4)
        for order in range(count):
            change = Event(str(number), f"{number}.{order}", order, random.choice(["orders", "products"]))
            if random.random() < 0.1:
                lost.add(str(number))
            else:
                topics[change.topic].append(change)
        if random.random() < 0.1:
            lost.add(str(number))
        else:
            topics["ends"].append(end(str(number), count))
        if random.random() < 0.3:
            topics["orders"].append(Event(None, f"none.{number}"))
    sent = {
        topic: [each.name for each in events if each.change_count is None] for topic, events in topics.items()
    }
    tables = Aligned(bucket, held_max=random.choice([3, 50]))
    seen: list[str] = []
    unaligned = second = 0
    came: dict[str | None, int] = {}
    while any(topics.values()):
        second += random.randrange(8)
        batch: list[Event] = []
        for events in topics.values():
            count = random.randrange(4)
            batch += events[:count]
            del events[:count]
        came |= {each.name: second for each in batch if each.change_count is None}
        if batch:
            released = tables.step(*batch, second=second)
            unaligned += tables.unaligned
            # Nothing is let go behind what lay behind it in its partition.
            for names in sent.values():
                before, now = ([names.index(name) for name in of if name in names] for of in (seen, released))
                assert max(before, default=-1) < min(now, default=len(names))
            seen += released
            assert all(name in seen or second - at <= 10 for name, at in came.items())
            assert tables.held_count <= tables._stepped.logic.held_max
    seen += tables.step(end("last", 0), second=second + 100)
    unaligned += tables.unaligned
    assert Counter(seen) == Counter(name for names in sent.values() for name in names)
    assert unaligned >= sum(1 for name in seen if name.partition(".")[0] in lost)
