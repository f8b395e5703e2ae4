"""Runs of one pipeline that begin afresh at the same time: one wins, in whatever order their steps come.

The real driver's code runs, on a broker that is two dictionaries. Each run has a thread, and only one of them
moves at a time: from before one thing that it does with the broker to before the next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Semaphore, Thread, local
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace.streams.sinks.topics as topics_module
from headrace.errors import InvalidProducerEpoch, PipelineReplaced
from headrace.streams.sinks.context import WriteContext
from headrace.streams.sinks.ledger import Batch, Entry, check_all
from headrace.streams.sinks.topics import TopicWriter
from headrace.streams.topic import Topic

HERE = local()
"""Whose thread this is."""


class Writer(TopicWriter):
    """The real one, until it has claimed the shares."""

    def _run(self, records: Any, batch: Batch) -> int:  # noqa: ARG002 - nothing is written
        return 0


@dataclass
class Broker:
    epochs: Counter[int] = field(default_factory=Counter)
    ledger: dict[int, Entry] = field(default_factory=dict)


class ShareWriter:
    def __init__(self, broker: Broker, task: int) -> None:
        self._broker, self._task = broker, task
        step()
        broker.epochs[task] += 1
        self._epoch = broker.epochs[task]

    def entry(self) -> Entry | None:
        return self._broker.ledger.get(self._task)

    def first_entry(self) -> Entry | None:
        return self._broker.ledger.get(0)

    def begin(self) -> None:
        pass

    def commit(self, entry: Entry) -> None:
        step()
        if self._broker.epochs[self._task] != self._epoch:
            raise InvalidProducerEpoch("fenced")
        self._broker.ledger[self._task] = entry

    def close(self) -> None:
        pass


class Ledger:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def entries(self, tasks: Sequence[int]) -> list[Entry | None]:
        step()
        return [self._broker.ledger.get(task) for task in tasks]

    def close(self) -> None:
        pass


class Run:
    """A run that moves when it is told to."""

    def __init__(self, query_id: str, partition_count: int) -> None:
        self.query_id = query_id
        self.is_over = self.is_replaced = False
        self._partition_count = partition_count
        self._go, self._stopped = Semaphore(0), Semaphore(0)
        self._thread = Thread(target=self._main, daemon=True)
        self._thread.start()

    def move(self) -> None:
        self._go.release()
        self._stopped.acquire()
        if self.is_over:
            self._thread.join()

    def wait(self) -> None:
        self._stopped.release()
        self._go.acquire()

    def _main(self) -> None:
        HERE.run = self
        self._go.acquire()
        try:
            self._claim()
        except PipelineReplaced:
            self.is_replaced = True
        finally:
            self.is_over = True
            self._stopped.release()

    def _claim(self) -> None:
        while True:
            context = WriteContext(
                pipeline="copies", query_id=self.query_id, bootstrap="-", guarantee="exactly-once"
            )
            writer = Writer(Topic(name="copies"), context, partition_count=self._partition_count)
            try:
                writer.write_records(cast("Any", ()), 0)
            except InvalidProducerEpoch:
                # It was shut out again and again: whoever looks after it starts it again.
                continue
            return


def step() -> None:
    HERE.run.wait()


@contextmanager
def on(broker: Broker) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(topics_module, "Ledger", lambda _connector, **_options: Ledger(broker))
        patched.setattr(topics_module, "ShareWriter", lambda _connector, task: ShareWriter(broker, task))
        patched.setattr(topics_module, "_pause", step)
        yield


def play(order: Sequence[int], run_count: int, partition_count: int) -> tuple[list[int], list[str]]:
    """Move the runs in this order, by their number among those that go on; then each to its end.

    Returns how many went on at each move, and who can write afterwards.
    """
    broker = Broker()
    choices: list[int] = []
    with on(broker):
        runs = [Run(f"run-{number}", partition_count) for number in range(run_count)]
        left, moves = list(runs), iter(order)
        while left:
            choices.append(len(left))
            left[next(moves, 0) % len(left)].move()
            left = [run for run in left if not run.is_over]
    entries = [broker.ledger.get(task) for task in range(partition_count)]
    return choices, [run.query_id for run in runs if not run.is_replaced and can_write(run, entries)]


def can_write(run: Run, entries: Sequence[Entry | None]) -> bool:
    batch = Batch(
        pipeline="copies", query_id=run.query_id, batch_id=0, digest="d", is_first=False, has_claimed=True
    )
    try:
        check_all(entries, batch, len(entries))
    except PipelineReplaced:
        return False
    return True


def orders(move_count: int, run_count: int, partition_count: int) -> Iterator[list[str]]:
    """Who can write, after each order in which so many moves can come."""
    order: list[int] = []
    while True:
        choices, winners = play(order, run_count, partition_count)
        yield winners
        order = [*order, *[0] * move_count][: min(move_count, len(choices))]
        while order and order[-1] == choices[len(order) - 1] - 1:
            order.pop()
        if not order:
            return
        order[-1] += 1


def test_of_two_runs_that_begin_together_one_wins_in_every_order_of_their_steps() -> None:
    outcomes = list(orders(11, run_count=2, partition_count=2))
    assert len(outcomes) > 400
    assert {len(winners) for winners in outcomes} == {1}
    assert {winner for (winner,) in outcomes} == {"run-0", "run-1"}


@given(
    order=st.lists(st.integers(0, 5), max_size=60),
    run_count=st.integers(1, 3),
    partition_count=st.integers(1, 3),
)
def test_of_any_runs_that_begin_together_one_wins(
    order: list[int], run_count: int, partition_count: int
) -> None:
    _, winners = play(order, run_count, partition_count)
    assert len(winners) == 1


def test_runs_that_do_not_mind_who_has_the_first_share_can_end_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So that the stories above are known to be able to fail."""
    monkeypatch.setattr(topics_module, "refuse_overtaken", lambda _first, _batch: None)
    assert any(not winners for winners in orders(11, run_count=2, partition_count=2))
