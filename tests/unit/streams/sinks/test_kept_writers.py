"""The driver's writers of shares, from batch to batch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from headrace.errors import InvalidProducerEpoch, PipelineFailed
from headrace.streams.sinks.gate import Gate
from headrace.streams.sinks.kept_writers import KeptWriters


@dataclass
class Writer:
    share: int
    is_closed: bool = False

    def close(self) -> None:
        self.is_closed = True


@dataclass
class Opened:
    """All writers that were opened."""

    writers: list[Writer] = field(default_factory=list)

    def open_writer(self, share: int) -> Any:
        self.writers.append(Writer(share))
        return self.writers[-1]


@pytest.fixture
def opened() -> Opened:
    return Opened()


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def kept(opened: Opened, gate: Gate) -> KeptWriters:
    return KeptWriters(opened.open_writer, gate)


def failing(error: Exception, *, only: Writer | None = None) -> Any:
    """Work that fails, with one of the writers or with all."""

    def work(writer: Any) -> int:
        if only is None or writer is only:
            raise error
        return cast("int", writer.share)

    return work


def share_of(writer: Any) -> int:
    return cast("int", writer.share)


def test_a_writer_is_kept_for_each_share(kept: KeptWriters, opened: Opened) -> None:
    assert [kept.use(share, share_of) for share in (0, 1, 0, 1)] == [0, 1, 0, 1]
    assert [writer.share for writer in opened.writers] == [0, 1]


def test_what_a_kept_writer_can_not_do_a_new_one_does(kept: KeptWriters, opened: Opened) -> None:
    kept.use(0, share_of)
    (old,) = opened.writers

    assert kept.use(0, failing(PipelineFailed("its connection is gone"), only=old)) == 0
    assert old.is_closed
    assert kept.use(0, share_of) == 0
    assert len(opened.writers) == 2


def test_what_a_new_writer_can_not_do_is_told_and_it_is_not_kept(kept: KeptWriters, opened: Opened) -> None:
    kept.use(0, share_of)
    with pytest.raises(PipelineFailed, match="no such topic"):
        kept.use(0, failing(PipelineFailed("no such topic")))
    assert [writer.is_closed for writer in opened.writers] == [True, True]


def test_a_writer_that_was_fenced_is_not_replaced_before_it_is_known_by_whom(
    kept: KeptWriters, opened: Opened
) -> None:
    kept.use(0, share_of)
    with pytest.raises(InvalidProducerEpoch):
        kept.use(0, failing(InvalidProducerEpoch("taken over")))
    assert [writer.is_closed for writer in opened.writers] == [True]
    assert kept.use(0, share_of) == 0
    assert len(opened.writers) == 2


def test_an_error_that_is_no_fault_of_the_broker_is_not_tried_again(
    kept: KeptWriters, opened: Opened
) -> None:
    kept.use(0, share_of)
    with pytest.raises(OSError, match="disk"):
        kept.use(0, failing(OSError("disk")))
    assert len(opened.writers) == 1


def test_writers_of_shares_that_others_have_written_are_let_go(kept: KeptWriters, opened: Opened) -> None:
    for share in (0, 1):
        kept.use(share, share_of)

    kept.forget([1, 7])

    assert [writer.is_closed for writer in opened.writers] == [False, True]
    kept.use(0, share_of)
    assert len(opened.writers) == 2
    kept.forget_all()
    kept.use(0, share_of)
    assert len(opened.writers) == 3


def test_a_run_that_was_stopped_uses_no_writer_and_opens_none(
    kept: KeptWriters, opened: Opened, gate: Gate
) -> None:
    kept.use(0, share_of)
    gate.close()

    for share in (0, 1):
        with pytest.raises(PipelineFailed, match="the run was stopped while it wrote a batch"):
            kept.use(share, share_of)
    assert [writer.share for writer in opened.writers] == [0]


def test_a_writer_that_fails_because_the_run_was_stopped_is_not_replaced(
    kept: KeptWriters, opened: Opened, gate: Gate
) -> None:
    kept.use(0, share_of)

    def stopped(_writer: Any) -> int:
        gate.close()
        raise PipelineFailed("its connection is gone")

    with pytest.raises(PipelineFailed, match="the run was stopped"):
        kept.use(0, stopped)
    assert [writer.is_closed for writer in opened.writers] == [True]


def test_a_writer_that_is_there_only_when_the_run_was_stopped_writes_nothing(
    opened: Opened, gate: Gate
) -> None:
    def open_late(share: int) -> Any:
        gate.close()
        return opened.open_writer(share)

    used: list[int] = []
    with pytest.raises(PipelineFailed, match="the run was stopped"):
        KeptWriters(open_late, gate).use(0, lambda writer: used.append(share_of(writer)))
    assert not used
    assert [writer.is_closed for writer in opened.writers] == [True]
