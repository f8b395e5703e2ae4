"""Whatever bytes a client of queues sends: an answer or a closed connection, and others are served."""

from __future__ import annotations

import pytest

from headrace.queue.amqp import session
from headrace.testing.fuzz.queue_checks import check_garbage, check_methods


@pytest.mark.parametrize("start", range(0, 400, 100))
def test_odd_methods_are_answered_or_refused(start: int) -> None:
    for seed in range(start, start + 100):
        check_methods(seed)


@pytest.mark.parametrize("start", range(0, 400, 100))
def test_garbage_is_refused_and_nothing_else(start: int) -> None:
    for seed in range(start, start + 100):
        check_garbage(seed)


def test_a_handler_that_raised_anything_else_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def planted(*_: object) -> None:
        raise IndexError

    def check_all() -> None:
        for seed in range(20):
            check_methods(seed)

    monkeypatch.setattr(session, "operate", planted)
    with pytest.raises(IndexError):
        check_all()
