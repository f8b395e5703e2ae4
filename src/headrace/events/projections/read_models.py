"""All read models of an application: keeps them up to date, and answers how far they are.

    models = ReadModels(store, PostgresPlace(dsn), [balances, statements], senders={"mail": send_mail})
    with models.running():
        result = store.execute("account-1", Deposit(cents=500))
        models.wait_for("balances", result.position, timeout_s=2)

`running` has one thread for each projection and one for effects. Where the version of a projection's code has
changed, its thread first rebuilds it. A process that only reads calls `wait_for` and `status` and runs
nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from headrace.errors import ConfigError, NotYetProjected, ProjectionReplaced
from headrace.events.projections.place import DeadLetter, Effect, FailedEffect, Generation, Place, live
from headrace.events.projections.projection import Projection
from headrace.events.projections.rebuild import OnProgress, clear, rebuild
from headrace.events.projections.running import keep_going
from headrace.events.projections.source import EventSource, page_reader
from headrace.events.subscription import Subscription

Send = Callable[[Effect], None]
EFFECT_ATTEMPT_COUNT_MAX: Final = 8
POLL_S: Final = 0.01
POLL_S_MAX: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectionStatus:
    """How a projection is."""

    name: str
    generation: int
    version: int
    position: int
    behind: int
    """How many events it has not seen yet."""
    building: Generation | None
    """A rebuild that is under way."""
    dead_letter_count: int
    stopped: str | None
    """Why it stands still, where this process has run it and it does."""


class ReadModels:
    """Read models of one log, in one place. Safe to use from several threads."""

    def __init__(
        self,
        store: EventSource,
        place: Place,
        projections: Sequence[Projection],
        *,
        senders: Mapping[str, Send] | None = None,
        effect_attempt_count_max: int = EFFECT_ATTEMPT_COUNT_MAX,
    ) -> None:
        self._store = store
        self._place = place
        self._projections = {each.name: each for each in projections}
        if len(self._projections) != len(projections):
            raise ConfigError(
                f"two projections have one name: {', '.join(each.name for each in projections)}"
            )
        self._senders = dict(senders or {})
        self._effect_attempt_count_max = effect_attempt_count_max
        self._stopped: dict[str, Exception] = {}
        for each in projections:
            place.prepare(each)

    def catch_up(self, name: str | None = None) -> None:
        """Bring one projection, or all, to the end of the log, and fire what effects are due."""
        for projection in self._chosen(name):
            subscription = self._subscription(projection)
            generation: Generation | None = live(self._place, projection.name)
            while generation is not None:
                generation = subscription.run_once(generation)
        self.fire_effects(name)

    def fire_effects(self, name: str | None = None) -> int:
        """Fire the effects that are due; returns how many were tried."""
        count = 0
        for projection in self._chosen(name):
            while self._senders and self._place.fire(
                projection.name, self._send, attempt_count_max=self._effect_attempt_count_max
            ):
                count += 1
        return count

    def rebuild(self, name: str, on_progress: OnProgress = lambda _: None) -> Generation:
        """Make a projection anew, and let it take the place of the present one when it has caught up."""
        projection = self._one(name)
        return rebuild(self._subscription(projection), self._place, projection, on_progress)

    def wait_for(self, name: str, position: int, *, timeout_s: float) -> int:
        """Read your own write: return once readers of a projection see all events up to a position.

        Returns the position that they see. Raises NotYetProjected when time is up.
        """
        deadline_s, pause_s = time.monotonic() + timeout_s, POLL_S
        while (seen := live(self._place, self._one(name).name).position) < position:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                raise NotYetProjected(
                    f"projection {name} is at position {seen}, and did not come to {position} within "
                    f"{timeout_s:g} s: ask again, or see whether it runs"
                )
            time.sleep(min(pause_s, left_s))
            pause_s = min(2 * pause_s, POLL_S_MAX)
        return seen

    def status(self) -> tuple[ProjectionStatus, ...]:
        """How all of them are."""
        return tuple(self._status(each) for each in self._projections.values())

    def dead_letters(self, name: str) -> Sequence[DeadLetter]:
        """The events that a projection could not take."""
        return self._place.dead_letters(self._one(name).name)

    def failed_effects(self, name: str) -> Sequence[FailedEffect]:
        """The effects that were tried too often."""
        return self._place.failed_effects(self._one(name).name)

    @contextmanager
    def running(self) -> Iterator[ReadModels]:
        """Keep all of them up to date while the context lasts.

        A projection that stops on an error stands still, and `status` says why; the others go on.
        """
        stop = threading.Event()
        threads = [
            threading.Thread(target=self._run, args=(each, stop), name=f"headrace-projection-{each.name}")
            for each in self._projections.values()
        ]
        if self._senders:
            threads.append(threading.Thread(target=self._run_effects, args=(stop,), name="headrace-effects"))
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            stop.set()
            for thread in threads:
                thread.join()

    def _run(self, projection: Projection, stop: threading.Event) -> None:
        subscription = self._subscription(projection, stop.wait)
        clear(self._place, projection.name)

        def go_on() -> bool:
            generation = live(self._place, projection.name)
            if generation.version != projection.version:
                rebuild(subscription, self._place, projection)
                return True
            try:
                is_any = False
                while not stop.is_set() and (further := subscription.run_once(generation)) is not None:
                    generation, is_any = further, True
            except ProjectionReplaced:
                # The same code may have made it anew meanwhile, by whomever it was asked: it goes on there.
                if live(self._place, projection.name).version != projection.version:
                    raise
                return True
            return is_any

        self._stopped.pop(projection.name, None)
        try:
            keep_going(go_on, stop)
        except Exception as error:  # noqa: BLE001 - whatever it is, `status` tells it
            self._stopped[projection.name] = error

    def _run_effects(self, stop: threading.Event) -> None:
        keep_going(lambda: self.fire_effects() > 0, stop)

    def _send(self, effect: Effect) -> None:
        send = self._senders.get(effect.kind)
        if send is None:
            raise ConfigError(f"nobody fires effects of kind {effect.kind!r}: name a sender for it")
        send(effect)

    def _status(self, projection: Projection) -> ProjectionStatus:
        name = projection.name
        found = self._place.generations(name)
        present = live(self._place, name)
        stopped = self._stopped.get(name)
        return ProjectionStatus(
            name=name,
            generation=present.number,
            version=present.version,
            position=present.position,
            behind=max(0, self._store.journal.head() - present.position),
            building=next((each for each in found if each.number != present.number), None),
            dead_letter_count=self._place.dead_letter_count(name),
            stopped=None if stopped is None else f"{type(stopped).__name__}: {stopped}",
        )

    def _subscription(
        self, projection: Projection, sleep: Callable[[float], object] = time.sleep
    ) -> Subscription:
        return Subscription(page_reader(self._store, projection), self._place, projection, sleep=sleep)

    def _chosen(self, name: str | None) -> tuple[Projection, ...]:
        return tuple(self._projections.values()) if name is None else (self._one(name),)

    def _one(self, name: str) -> Projection:
        if name not in self._projections:
            raise ConfigError(f"there is no projection {name!r}; there are {', '.join(self._projections)}")
        return self._projections[name]
