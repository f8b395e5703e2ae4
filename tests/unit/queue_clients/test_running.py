"""What runs until it is stopped: again after what may pass, not after what can't; with pauses that grow."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from headrace.errors import BridgeReplaced, HeadraceError, QueueServerRefused, QueueServerUnavailable
from headrace.queue_clients import running
from headrace.queue_clients.running import keep_running, may_pass


class Runs:
    """Fails as told, and notes the pauses in between."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *outcomes: tuple[bool, HeadraceError]) -> None:
        self._outcomes: Iterator[tuple[bool, HeadraceError]] = iter(outcomes)
        self.ready_count = 0
        self.pauses: list[float] = []
        self.stopping = asyncio.Event()
        monkeypatch.setattr(running, "waited", self._wait)

    async def run(self) -> None:
        """Get ready or not, and fail; stop when there is nothing more to tell."""
        outcome = next(self._outcomes, None)
        if outcome is None:
            self.stopping.set()
            return
        gets_ready, error = outcome
        self.ready_count += gets_ready
        raise error

    async def keep(self) -> None:
        """Keep it running."""
        await keep_running("it", self.run, self.stopping, lambda: self.ready_count)

    async def _wait(self, _stopping: asyncio.Event, pause_s: float) -> None:
        self.pauses.append(pause_s)


GONE = QueueServerUnavailable("gone")


def test_pauses_double_while_it_does_not_get_ready_and_begin_anew_when_it_did(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs = Runs(monkeypatch, (False, GONE), (False, GONE), (False, GONE), (True, GONE), (False, GONE))
    asyncio.run(runs.keep())
    assert runs.pauses == [0.5, 1.0, 2.0, 0.5, 1.0]


def test_pauses_have_a_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs(monkeypatch, *[(False, GONE)] * 9)
    asyncio.run(runs.keep())
    assert runs.pauses[-3:] == [30.0, 30.0, 30.0]


def test_what_cannot_pass_is_raised_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs(monkeypatch, (False, GONE), (True, BridgeReplaced("taken over")))
    with pytest.raises(BridgeReplaced):
        asyncio.run(runs.keep())
    assert runs.pauses == [0.5]


@pytest.mark.parametrize(
    ("code", "passes"), [(403, True), (405, True), (541, True), (404, False), (406, False)]
)
def test_a_refusal_may_pass_where_another_has_what_only_one_may_have(code: int, passes: bool) -> None:
    assert may_pass(QueueServerRefused("no", reply_code=code)) is passes
