from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest

from headrace.cdc.messages import Begin, Commit, Insert, Message, Origin, Relation
from headrace.cdc.transactions import Transactions
from headrace.errors import ProtocolError, StorageError
from headrace.testing import pgoutput as pg

DEMO = pg.table(1, "public.demo", {"id": "int4"})


class MemorySpill:
    def __init__(self) -> None:
        self.files: dict[int, bytes] = {}

    def append(self, xid: int, data: bytes) -> None:
        self.files[xid] = self.files.get(xid, b"") + data

    def truncate(self, xid: int, size_bytes: int) -> None:
        assert 0 < size_bytes < len(self.files[xid])
        self.files[xid] = self.files[xid][:size_bytes]

    def read(self, xid: int) -> Iterator[bytes]:
        data = self.files[xid]
        for start in range(0, len(data), 7):
            yield data[start : start + 7]

    def discard(self, xid: int) -> None:
        del self.files[xid]


def feed(transactions: Transactions, *payloads: bytes) -> list[tuple[int, Message]]:
    taken: list[tuple[int, Message]] = []
    for lsn, payload in enumerate(payloads, start=1):
        taken += transactions.feed(lsn, payload)
    return taken


def block(xid: int, *payloads: bytes, is_first: bool = False) -> list[bytes]:
    return [pg.stream_start(xid, is_first=is_first), *payloads, pg.stream_stop()]


def row(number: int, xid: int) -> bytes:
    return pg.insert(1, [str(number).encode()], xid)


def end(xid: int) -> bytes:
    return pg.stream_commit(xid=xid, commit_lsn=900, end_lsn=950, commit_us=5)


def numbers(taken: Iterable[tuple[int, Message]]) -> list[int]:
    return [int(str(each.new[0], "ascii")) for _, each in taken if isinstance(each, Insert)]  # type: ignore[arg-type]


@pytest.fixture(params=[10**6, 60, 0], ids=["in memory", "partly spilled", "all spilled"])
def memory_bytes_max(request: pytest.FixtureRequest) -> int:
    limit: int = request.param
    return limit


@pytest.fixture
def spill() -> MemorySpill:
    return MemorySpill()


@pytest.fixture
def transactions(spill: MemorySpill, memory_bytes_max: int) -> Iterator[Transactions]:
    transactions = Transactions(spill, memory_bytes_max)
    yield transactions
    assert transactions.memory_bytes <= memory_bytes_max


def test_a_small_transaction_passes_straight_through(transactions: Transactions) -> None:
    begin = pg.begin(final_lsn=1, commit_us=2, xid=3)
    assert feed(transactions, begin, pg.insert(1, [b"7"])) == [
        (1, Begin(final_lsn=1, commit_us=2, xid=3)),
        (2, Insert(1, [b"7"])),
    ]


def test_a_streamed_transaction_comes_when_it_commits_like_a_small_one(
    transactions: Transactions, spill: MemorySpill
) -> None:
    assert feed(transactions, *block(5, row(1, 5), row(2, 5), is_first=True), *block(5, row(3, 5))) == []
    taken = feed(transactions, end(5))
    assert taken[0] == (900, Begin(final_lsn=900, commit_us=5, xid=5))
    assert taken[-1] == (950, Commit(commit_lsn=900, end_lsn=950, commit_us=5))
    assert taken[1:-1] == [(2, Insert(1, [b"1"])), (3, Insert(1, [b"2"])), (6, Insert(1, [b"3"]))]
    assert (transactions.open_count, transactions.memory_bytes, spill.files) == (0, 0, {})


def test_interleaved_transactions_come_in_the_order_of_their_commits(transactions: Transactions) -> None:
    feed(transactions, *block(5, row(1, 5), is_first=True), *block(6, row(2, 6), is_first=True))
    feed(transactions, *block(5, row(3, 5)))
    small = [pg.begin(final_lsn=1, commit_us=2, xid=9), pg.insert(1, [b"4"])]
    assert numbers(feed(transactions, *small)) == [4]
    assert numbers(feed(transactions, end(6))) == [2]
    assert numbers(feed(transactions, end(5))) == [1, 3]


def test_what_a_subtransaction_did_goes_when_it_is_rolled_back(
    transactions: Transactions, spill: MemorySpill
) -> None:
    feed(transactions, *block(5, row(1, 5), row(2, 51), row(3, 52), is_first=True), *block(5, row(4, 51)))
    feed(transactions, pg.stream_abort(5, 52), pg.stream_abort(5, 51), *block(5, row(5, 5), row(6, 53)))
    assert numbers(feed(transactions, end(5))) == [1, 5, 6]
    assert spill.files == {}


def test_a_subtransaction_that_was_rolled_back_first_takes_nothing_of_its_parent(
    transactions: Transactions,
) -> None:
    feed(
        transactions,
        *block(5, row(1, 51), row(2, 52), is_first=True),
        pg.stream_abort(5, 52, is_parallel=True),
    )
    feed(transactions, *block(5, row(3, 51)))
    assert numbers(feed(transactions, end(5))) == [1, 3]


def test_a_subtransaction_that_went_with_its_parent_takes_nothing_along_later(
    transactions: Transactions,
) -> None:
    feed(transactions, *block(5, row(1, 51), row(2, 52), is_first=True), pg.stream_abort(5, 51))
    feed(transactions, *block(5, row(3, 5), row(4, 53)), pg.stream_abort(5, 52))
    assert numbers(feed(transactions, end(5))) == [3, 4]


def test_a_subtransaction_of_which_nothing_came_takes_nothing_along(transactions: Transactions) -> None:
    feed(transactions, *block(5, row(1, 5), is_first=True), pg.stream_abort(5, 77))
    assert numbers(feed(transactions, end(5))) == [1]


def test_a_transaction_that_is_rolled_back_leaves_nothing(
    transactions: Transactions, spill: MemorySpill
) -> None:
    feed(transactions, *block(5, row(1, 5), row(2, 51), is_first=True), pg.stream_abort(5, 5))
    assert (transactions.open_count, transactions.memory_bytes, spill.files) == (0, 0, {})


def test_the_description_of_a_table_outlives_the_subtransaction_that_it_came_in(
    transactions: Transactions,
) -> None:
    feed(transactions, *block(5, pg.relation(DEMO, 51), row(1, 51), is_first=True), pg.stream_abort(5, 51))
    feed(transactions, *block(5, row(2, 52)), pg.stream_abort(5, 52), *block(5, row(3, 5)))
    taken = [message for _, message in feed(transactions, end(5))]
    assert [type(each) for each in taken] == [Begin, Relation, Insert, Commit]


def test_an_origin_in_a_stream_has_no_transaction_of_its_own(transactions: Transactions) -> None:
    feed(transactions, *block(5, pg.origin(commit_lsn=1, name="far"), row(1, 5), is_first=True))
    assert (2, Origin(commit_lsn=1, name="far")) in feed(transactions, end(5))


def test_what_does_not_fit_into_memory_lies_on_disk(spill: MemorySpill) -> None:
    transactions = Transactions(spill, 100)
    feed(transactions, *block(5, *[row(each, 5) for each in range(100)], is_first=True))
    feed(transactions, *block(6, row(7, 6), is_first=True))
    assert transactions.memory_bytes <= 100
    assert spill.files.keys() == {5}
    assert numbers(feed(transactions, end(5))) == list(range(100))


@pytest.mark.parametrize(
    ("payloads", "why"),
    [
        ([pg.stream_stop()], "had not been started"),
        ([*block(5, is_first=False)], "start was not streamed"),
        ([end(5)], "start was not streamed"),
        ([pg.stream_abort(5, 5)], "start was not streamed"),
        ([*block(5, is_first=True), *block(5, is_first=True)], "for the second time"),
        ([pg.stream_start(5, is_first=True), end(5)], "StreamCommit came while transaction 5 was streamed"),
        ([pg.stream_start(5, is_first=True), pg.begin(final_lsn=1, commit_us=1, xid=1)], "Begin came while"),
        ([pg.stream_start(5, is_first=True), b""], "empty"),
    ],
)
def test_a_stream_out_of_order_is_refused(payloads: list[bytes], why: str) -> None:
    with pytest.raises(ProtocolError, match=why):
        feed(Transactions(MemorySpill()), *payloads)


def test_a_spill_that_was_cut_short_is_noticed(spill: MemorySpill) -> None:
    transactions = Transactions(spill, 0)
    feed(transactions, *block(5, row(1, 5), is_first=True))
    spill.files[5] = spill.files[5][:-1]
    with pytest.raises(StorageError, match="transaction 5 ends within a message"):
        feed(transactions, end(5))
