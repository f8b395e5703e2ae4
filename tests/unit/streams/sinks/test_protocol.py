"""The commit protocol by stories: random crashes, retries, cuts, grown topics and zombies; each row once.

The real driver's and tasks' code runs, on a broker that is a few dictionaries. Shares are written by tasks or
handed back to the driver, as it comes. Either dies at a named place, or when its commit has happened and its
answer has not come; those that are dead may come back later and try to commit.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace.streams.sinks.topic_task as topic_task_module
import headrace.streams.sinks.topics as topics_module
from headrace.errors import PipelineError, PipelineFailed, PipelineReplaced
from headrace.streams.sinks.connection import Connector, Record
from headrace.streams.sinks.context import WriteContext
from headrace.streams.sinks.handed import Piece, to_bytes
from headrace.streams.sinks.ledger import Batch, Entry
from headrace.streams.sinks.topic_task import TopicTask
from headrace.streams.sinks.topics import TopicWriter
from headrace.streams.topic import Topic

Guarantee = Literal["exactly-once", "at-most-once"]
HandedShare = tuple[int, Sequence[Piece]]
SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)


class Crash(Exception):
    """The whole pipeline is killed."""


@dataclass
class Broker:
    """What outlives a crash."""

    partition_count: int
    chance: random.Random
    crashes: bool = True
    epochs: Counter[int] = field(default_factory=Counter)
    ledger: dict[int, Entry] = field(default_factory=dict)
    values: list[bytes | None] = field(default_factory=list)
    zombies: list[ShareWriter] = field(default_factory=list)
    claims: set[str] = field(default_factory=set)

    def is_fenced(self, writer: ShareWriter) -> bool:
        return self.epochs[writer.task] != writer.epoch

    def place(self, _name: str = "") -> None:
        """Somewhere the pipeline may die. Dead tasks may move meanwhile."""
        if self.zombies and self.chance.random() < 0.3:
            with suppress(PipelineFailed):
                self.zombies.pop(self.chance.randrange(len(self.zombies))).commit_again()
        if self.crashes and self.chance.random() < 0.15:
            raise Crash


@dataclass
class ShareWriter:
    """A transactional producer; what `Broker` keeps is all that it shares with others."""

    broker: Broker
    task: int
    epoch: int
    sent: list[bytes | None] = field(default_factory=list)
    pending: Entry | None = None

    def entry(self) -> Entry | None:
        return self.broker.ledger.get(self.task)

    def first_entry(self) -> Entry | None:
        return self.broker.ledger.get(0)

    def begin(self) -> None:
        self.sent = []

    def send(self, records: Iterable[Record]) -> int:
        self.sent = [value for _topic, _key, value, _headers in records]
        return len(self.sent)

    def commit(self, entry: Entry) -> None:
        self.pending = entry
        try:
            self.broker.place()
        except Crash:
            # It is dead, but its request may be on the way still.
            self.broker.zombies.append(self)
            raise
        self.commit_again()
        self.broker.place()

    def commit_again(self) -> None:
        if self.broker.is_fenced(self):
            raise PipelineFailed("fenced")
        assert self.pending is not None
        self.broker.ledger[self.task] = self.pending
        self.broker.values.extend(self.sent)

    def abort(self) -> None:
        """Whoever is dead does no such thing."""

    def close(self) -> None:
        pass


class Ledger:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def entries(self, tasks: Sequence[int]) -> list[Entry | None]:
        return [self._broker.ledger.get(task) for task in tasks]

    def close(self) -> None:
        pass


@dataclass(frozen=True, kw_only=True)
class Context(WriteContext):
    """With the note of a checkpoint in place of the checkpoint."""

    claims: set[str]

    def batch(self, batch_id: int, target: str, *, is_first: bool) -> Batch:
        batch = super().batch(batch_id, target, is_first=is_first)
        return replace(batch, has_claimed=self.query_id in self.claims)

    def note_claim(self, target: str) -> None:  # noqa: ARG002 - there is one only
        self.claims.add(self.query_id)


class Writer(TopicWriter):
    """The real one, but for Spark: rows are numbers, cut and ordered anew at each try."""

    def __init__(self, broker: Broker, guarantee: Guarantee, query_id: str = "q") -> None:
        context = Context(
            pipeline="copies", query_id=query_id, bootstrap="-", guarantee=guarantee, claims=broker.claims
        )
        super().__init__(Topic(name="copies"), context, partition_count=broker.partition_count)
        self._broker = broker

    def _run(self, records: Any, batch: Batch) -> int:
        chance = self._broker.chance
        rows = chance.sample(records, len(records))
        is_exact = self._guarantee == "exactly-once"
        size_max = chance.choice((0, 30, 9999)) if is_exact else 0
        work = replace(self._task(batch), connector=cast("Connector", None), handed_bytes_max=size_max)
        if is_exact and chance.random() < 0.3:
            return self._hand_over(work, rows)
        shares = chance.sample(range(self._task_count), self._task_count)
        own = {share: [row for row in rows if row % self._task_count == share] for share in shares}
        return self._finish(work, [work.answer(share, record_batches(own[share])) for share in shares])

    def _hand_over(self, work: TopicTask, rows: Sequence[int]) -> int:
        """Without tasks for the shares: those that have computed the rows hand them over, in some cut."""
        cut = self._broker.chance.randint(0, len(rows))
        handed: dict[int, list[Piece]] = {}
        for piece in (rows[:cut], rows[cut:]):
            for share in {row % self._task_count for row in piece}:
                own = [row for row in piece if row % self._task_count == share]
                handed.setdefault(share, []).append(to_bytes(list(record_batches(own))))
        return self._write_handed(work, handed)

    def _at_once(self, work: Callable[[HandedShare], int], shares: Sequence[HandedShare]) -> list[int]:
        # One after the other, so that a seed is one story.
        return [work(share) for share in shares]


def record_batches(share: Sequence[int]) -> Iterator[pa.RecordBatch]:
    for row in share:
        record = {"topic": "copies", "key": None, "value": b"%d" % row, "headers": None}
        yield pa.RecordBatch.from_pylist([record], SCHEMA)


@contextmanager
def on(broker: Broker) -> Iterator[None]:
    """Let writers have this broker."""

    def open_share(_connector: object, task: int, **_options: object) -> ShareWriter:
        broker.epochs[task] += 1
        return ShareWriter(broker, task, broker.epochs[task])

    def send_plainly(_connector: object, records: Iterable[Record]) -> int:
        values = [value for _topic, _key, value, _headers in records]
        for value in values:
            broker.place()
            broker.values.append(value)
        return len(values)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(topics_module, "Ledger", lambda _connector, **_options: Ledger(broker))
        for module in (topics_module, topic_task_module):
            patched.setattr(module, "ShareWriter", open_share)
            patched.setattr(module, "hit", broker.place)
        patched.setattr(topic_task_module, "send_plainly", send_plainly)
        yield


def play(seed: int, batch_count: int, guarantee: Guarantee) -> tuple[list[int], list[int]]:
    """Run batches, each until it is through; return the rows that went in and those that came out."""
    chance = random.Random(seed)
    broker = Broker(partition_count=chance.randint(1, 4), chance=chance)
    rows: list[int] = []
    with on(broker):
        writer = Writer(broker, guarantee)
        for batch_id in range(batch_count):
            # A batch of few rows leaves some tasks without any.
            batch = list(range(len(rows), len(rows) + chance.randint(0, 9)))
            rows += batch
            while True:
                try:
                    writer.write_records(cast("Any", batch), batch_id)
                    break
                except Crash:
                    # Topics grow, and a start sees it.
                    broker.partition_count = min(broker.partition_count + (chance.random() < 0.3), 5)
                    writer = Writer(broker, guarantee)
    return rows, [int(value or b"") for value in broker.values]


@given(seed=st.integers(0, 2**32), batch_count=st.integers(1, 12))
def test_exactly_once_each_row_comes_out_once(seed: int, batch_count: int) -> None:
    rows, values = play(seed, batch_count, "exactly-once")
    assert sorted(values) == rows


@given(seed=st.integers(0, 2**32), batch_count=st.integers(1, 12))
def test_at_most_once_no_row_comes_out_twice(seed: int, batch_count: int) -> None:
    rows, values = play(seed, batch_count, "at-most-once")
    assert len(set(values)) == len(values)
    assert set(values) <= set(rows)


@given(seed=st.integers(0, 2**32))
def test_of_two_checkpoints_that_are_both_started_again_and_again_the_newer_one_wins(seed: int) -> None:
    chance = random.Random(seed)
    broker = Broker(partition_count=chance.randint(1, 4), chance=chance)
    done: Counter[str] = Counter()

    def advance(query_id: str) -> None:
        """Its next batch, of ten rows that are its own."""
        begin = (1000 if query_id == "newer" else 0) + 10 * done[query_id]
        rows = cast("Any", list(range(begin, begin + 10)))
        while True:
            try:
                writers[query_id].write_records(rows, done[query_id])
                break
            except Crash:
                writers[query_id] = Writer(broker, "exactly-once", query_id)
        done[query_id] += 1

    with on(broker):
        writers = {query_id: Writer(broker, "exactly-once", query_id) for query_id in ("older", "newer")}
        for _ in range(chance.randint(1, 3)):
            advance("older")
        advance("newer")
        with pytest.raises(PipelineReplaced):
            advance("older")
        for _ in range(3):
            advance("newer")
            writers["older"] = Writer(broker, "exactly-once", "older")
            with pytest.raises(PipelineReplaced):
                advance("older")
    values = [int(value or b"") for value in broker.values]
    assert sorted(values) == [*range(10 * done["older"]), *range(1000, 1000 + 10 * done["newer"])]


def test_at_most_once_rows_are_lost() -> None:
    assert any(len(rows) > len(values) for rows, values in _played(20, "at-most-once"))


@pytest.mark.parametrize("broken", ["begun_task_count", "decide", "fencing"])
def test_a_protocol_that_is_broken_is_found_out(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the stories above are known to be able to fail."""
    if broken == "begun_task_count":
        monkeypatch.setattr(topics_module, broken, lambda _entries, _batch: None)
    elif broken == "decide":
        monkeypatch.setattr(topic_task_module, broken, lambda *_arguments: None)
    else:
        monkeypatch.setattr(Broker, "is_fenced", lambda _broker, _writer: False)
    assert any(not _is_each_row_once(seed) for seed in range(300))


def _is_each_row_once(seed: int) -> bool:
    try:
        rows, values = play(seed, 8, "exactly-once")
    except PipelineError:
        return False
    return sorted(values) == rows


def _played(count: int, guarantee: Guarantee) -> Iterator[tuple[list[int], list[int]]]:
    return (play(seed, 8, guarantee) for seed in range(count))
