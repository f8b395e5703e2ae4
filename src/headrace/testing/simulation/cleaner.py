"""Retention and compaction by the log's own steps, taken as the cleaner thread takes them.

Each step that belongs to the event loop's thread is an event of its own, so that clients come between.
"""

from __future__ import annotations

import logging
from collections import deque
from functools import partial
from inspect import GEN_RUNNING, getgeneratorstate
from typing import TYPE_CHECKING, Any, Final

from headrace.errors import HeadraceError, PartitionClosed
from headrace.log.cleaner import Abandoned
from headrace.log.cleaning import PartitionCleaning
from headrace.log.trusted_time import TrustedTime

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from headrace.clock import Clock
    from headrace.kafka.engine import Engine
    from headrace.log.partition import PartitionLog
    from headrace.log.store import LogStore
    from headrace.testing.simulation.broker import Life

    Steps = Generator[Callable[[], Any], Any, int]

logger: Final = logging.getLogger(__name__)

STEP_S: Final = 0.004
MEMORY_BYTES: Final = 1024 * 1024


class SimulatedCleaner:
    """Goes through all partitions of one life, again and again."""

    def __init__(self, life: Life, store: LogStore, engine: Engine, clock: Clock, interval_s: float) -> None:
        self._life = life
        self._store = store
        self._engine = engine
        self._clock = clock
        self._interval_s = interval_s
        self._trusted_time = TrustedTime(clock.now_ms(), clock.monotonic_s())
        self._cleanings: dict[PartitionLog, PartitionCleaning] = {}
        self._steps: Steps | None = None
        self._go_on: Callable[[], None] | None = None
        """Takes the next step: the call that it waited for has been made."""
        self._is_stopping = False

    def start(self) -> None:
        """Begin."""
        self._life.call_later(self._interval_s, lambda: self._life.threads.when_idle(self._go_through))

    def stop(self) -> None:
        """Let the thread know of the last call that was made for it, and end: it would be waited for."""
        self._is_stopping = True
        if self._go_on is not None:
            self._go_on()
        self.die()

    def die(self) -> None:
        """Take no further step."""
        if self._steps is not None and getgeneratorstate(self._steps) != GEN_RUNNING:
            self._steps.close()

    def _go_through(self) -> None:
        self._clean_next(deque(self._store.partitions()))

    def _clean_next(self, logs: deque[PartitionLog]) -> None:
        if self._is_stopping:
            return
        if not logs:
            self.start()
            return
        log = logs.popleft()
        if log.is_retiring or log.failed is not None:
            self._clean_next(logs)
            return
        cleaning = self._cleanings.setdefault(log, PartitionCleaning(log, lambda: self._check(log)))
        now_ms = self._trusted_time.now_ms(self._clock.now_ms(), self._clock.monotonic_s())

        start_offset = log.start_offset

        def compact() -> None:
            if log.start_offset > start_offset:
                self._engine.services.watchers.notify(log)
            self._step(log, cleaning.compact(now_ms, MEMORY_BYTES), lambda: self._clean_next(logs))

        self._step(log, cleaning.retain(now_ms), compact)

    def _step(
        self,
        log: PartitionLog,
        steps: Steps,
        then: Callable[[], None],
        result: Any = None,
        error: Exception | None = None,
    ) -> None:
        """Work up to the next call that belongs to the loop, which is made in an event of its own."""
        if log.is_retiring:
            error = Abandoned()
        self._steps, self._go_on = steps, None
        try:
            call = steps.send(result) if error is None else steps.throw(error)
        except StopIteration:
            then()
        except (Abandoned, PartitionClosed):
            then()
        except (HeadraceError, OSError) as failure:
            logger.warning("cleaning %s failed: %s", log.directory, failure)
            if log.failed is not None:
                self._engine.services.commit.fail(log.failed)
            then()
        else:
            self._life.call_later(STEP_S, lambda: self._answer(log, steps, then, call))

    def _answer(
        self, log: PartitionLog, steps: Steps, then: Callable[[], None], call: Callable[[], Any]
    ) -> None:
        try:
            result = call()
        except Exception as error:  # noqa: BLE001  # whatever it is, the steps get it
            step = partial(self._step, log, steps, then, error=error)
        else:
            step = partial(self._step, log, steps, then, result)
        self._go_on = step
        self._life.threads.when_idle(step)

    def _check(self, log: PartitionLog) -> None:
        if self._is_stopping or log.is_retiring:
            raise Abandoned
