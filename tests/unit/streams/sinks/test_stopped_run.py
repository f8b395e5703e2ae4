"""A run that is stopped while it writes: when `close` is through, nobody of it writes any more.

The real driver's code runs, with its threads, on a broker that is a few dictionaries and lets commits wait.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

import headrace.streams.sinks.side_rows as side_rows_module
import headrace.streams.sinks.topics as topics_module
from headrace.errors import InvalidProducerEpoch, PipelineFailed
from headrace.streams.side_files import SideFiles
from headrace.streams.sinks.connection import Record
from headrace.streams.sinks.context import WriteContext
from headrace.streams.sinks.foreach_batch import ForeachBatch
from headrace.streams.sinks.ledger import Batch, Entry
from headrace.streams.sinks.share_threads import ShareThreads
from headrace.streams.sinks.side_rows import SideOutput
from headrace.streams.sinks.topics import TopicWriter
from headrace.streams.topic import Topic

SHARES = 3
WAIT_S_MAX = 20.0


@dataclass
class Broker:
    """It keeps transactions waiting until their writers are fenced, once it is told to."""

    epochs: Counter[int] = field(default_factory=Counter)
    ledger: dict[int, Entry] = field(default_factory=dict)
    committed: list[int] = field(default_factory=list)
    is_waiting: bool = False
    changed: threading.Condition = field(default_factory=threading.Condition)
    waiting: set[int] = field(default_factory=set)
    refused: set[int] = field(default_factory=set)

    def open_share(self, _connector: object, share: int, **_options: object) -> ShareWriter:
        with self.changed:
            self.epochs[share] += 1
            self.changed.notify_all()
            return ShareWriter(self, share, self.epochs[share])

    def commit(self, writer: ShareWriter, entry: Entry) -> None:
        with self.changed:
            if self.is_waiting:
                self.waiting.add(writer.share)
                self.changed.notify_all()
                assert self.changed.wait_for(lambda: self.is_fenced(writer), WAIT_S_MAX)
            if self.is_fenced(writer):
                self.refused.add(writer.share)
                raise InvalidProducerEpoch("fenced")
            self.ledger[writer.share] = entry
            self.committed.append(writer.share)

    def is_fenced(self, writer: ShareWriter) -> bool:
        return self.epochs[writer.share] != writer.epoch

    def await_waiting(self) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.waiting == set(range(SHARES)), WAIT_S_MAX)


@dataclass
class ShareWriter:
    broker: Broker
    share: int
    epoch: int

    def entry(self) -> Entry | None:
        return self.broker.ledger.get(self.share)

    first_entry = entry

    def begin(self) -> None:
        pass

    def send(self, records: Iterable[Record]) -> int:
        return len(list(records))

    def commit(self, entry: Entry) -> None:
        self.broker.commit(self, entry)

    def abort(self) -> None:
        pass

    def close(self) -> None:
        pass


@dataclass
class Ledger:
    broker: Broker

    def entries(self, shares: Sequence[int]) -> list[Entry | None]:
        return [self.broker.ledger.get(share) for share in shares]

    def close(self) -> None:
        pass


class Writer(TopicWriter):
    """The real one, but for Spark: each share of a batch is one row, which its task hands back."""

    def __init__(self) -> None:
        context = WriteContext(pipeline="copies", query_id="q", bootstrap="-", guarantee="exactly-once")
        super().__init__(Topic(name="copies"), context, partition_count=SHARES)

    def _run(self, records: Any, batch: Batch) -> int:  # noqa: ARG002 - they are always the same
        task = self._task(batch)
        return self._finish(task, [task.answer(share, one_row()) for share in range(SHARES)])


def one_row() -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({"key": pa.array([b"k"]), "value": pa.array([b"v"])})


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    made = Broker()
    monkeypatch.setattr(topics_module, "Ledger", lambda _connector, **_options: Ledger(made))
    monkeypatch.setattr(topics_module, "ShareWriter", made.open_share)
    # All that a thread could do in this time it does before `close` is through, or never.
    monkeypatch.setattr(topics_module, "CLOSE_S_MAX", WAIT_S_MAX)
    return made


def started(work: Callable[[], object]) -> Future[object]:
    """A thread that goes on when others give up, as that which Spark calls does."""
    future: Future[object] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - it is raised where the result is asked for
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def test_threads_that_are_fenced_by_close_open_no_writer_and_commit_nothing(broker: Broker) -> None:
    writer = Writer()
    assert writer.write_records(cast("Any", ()), 0) == SHARES
    broker.is_waiting = True
    writing = started(lambda: writer.write_records(cast("Any", ()), 1))
    broker.await_waiting()
    committed, epochs = list(broker.committed), Counter(broker.epochs)

    writer.close()

    assert broker.refused == set(range(SHARES)), "`close` has waited for the threads"
    with pytest.raises(PipelineFailed, match="the run was stopped while it wrote a batch"):
        writing.result(WAIT_S_MAX)
    assert broker.committed == committed
    assert broker.epochs == Counter({share: epochs[share] + 1 for share in range(SHARES)}), "only by `close`"


def test_a_writer_that_is_closed_claims_and_writes_nothing(broker: Broker) -> None:
    fresh, used = Writer(), Writer()
    used.write_records(cast("Any", ()), 0)
    committed, epochs = list(broker.committed), Counter(broker.epochs)
    for writer in (fresh, used):
        writer.close()
        with pytest.raises(PipelineFailed, match="the run was stopped"):
            writer.write_records(cast("Any", ()), 1)
    assert (broker.committed, broker.epochs) == (committed, epochs)


def test_threads_of_shares_do_not_keep_the_process_from_ending() -> None:
    assert ShareThreads().run(lambda _share: int(threading.current_thread().daemon), [0, 1]) == [1, 1]


def test_a_share_that_fails_is_told_when_all_others_are_through() -> None:
    first_may_end, through = threading.Event(), []

    def work(share: int) -> int:
        if share == 1:
            first_may_end.set()
            raise InvalidProducerEpoch("fenced")
        assert first_may_end.wait(WAIT_S_MAX)
        through.append(share)
        return share

    threads = ShareThreads()
    with pytest.raises(InvalidProducerEpoch, match="fenced"):
        threads.run(work, range(3))
    assert sorted(through) == [0, 2]
    assert threads.run(lambda share: share * 2, [3, 1, 2]) == [6, 2, 4]
    assert threads.run(work, []) == []


def test_a_batch_whose_writer_is_opened_while_the_run_is_stopped_is_not_written() -> None:
    written: list[int] = []

    def write(_rows: object, batch_id: int) -> int:
        written.append(batch_id)
        return 1

    def open_writer() -> Any:
        batches.close()
        return write, lambda: None

    batches = ForeachBatch(open_writer)
    for batch_id in range(2):
        with pytest.raises(PipelineFailed, match="the run was stopped"):
            batches(cast("Any", None), batch_id)
    assert not written


def test_rows_beside_results_are_not_written_by_a_run_that_was_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Rows:
        def write(self, rows: object, batch_id: int) -> int | None:
            raise AssertionError((rows, batch_id))

        def close(self) -> None:
            pass

    monkeypatch.setattr(SideFiles, "parts", lambda _files, _batch_id: [tmp_path / "part"])
    monkeypatch.setattr(side_rows_module, "read_parts", lambda _session, _parts: None)
    output = SideOutput(files=SideFiles.of(tmp_path, "window"), open_writer=Rows)
    output.close()
    with pytest.raises(PipelineFailed, match="the run was stopped"):
        output.write(cast("Any", None), 0)
