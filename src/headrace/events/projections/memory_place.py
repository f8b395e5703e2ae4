"""Read models in memory: for tests, and for what may be gone when the process ends.

Tables are dicts. A batch works on a copy, which takes the place of the tables when it ends well.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from headrace.events.projections.place import (
    DeadLetter,
    Effect,
    FailedEffect,
    Generation,
    GenerationState,
    effect_id,
)
from headrace.events.projections.projection import Projection
from headrace.events.projections.replaced import check_generation

Tables = dict[str, dict[Any, Any]]


@dataclass(slots=True)
class _Due:
    effect: Effect
    attempt_count: int = 0
    cause: str = ""


@dataclass(slots=True)
class _Kept:
    """A generation and its data."""

    generation: Generation
    tables: Tables = field(default_factory=dict)
    letters: list[DeadLetter] = field(default_factory=list)
    held: dict[UUID, Effect] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)


class MemoryWork:
    """What a projection's function is given: `tables["balances"]["account-1"] = 5`."""

    def __init__(self, batch: MemoryBatch, event: Any) -> None:
        self.tables = batch.tables
        self._batch = batch
        self._event = event

    def fire(self, kind: str, payload: Mapping[str, Any], *, key: str = "") -> None:
        """Ask for an effect; `key` tells several of one kind and event apart."""
        found = effect_id(self._batch.projection.name, self._event, kind, key)
        self._batch.effects[found] = Effect(
            id=found,
            projection=self._batch.projection.name,
            kind=kind,
            position=self._event.position,
            payload=dict(payload),
        )


class MemoryBatch:
    """A transaction: a copy of a generation's data."""

    def __init__(self, projection: Projection, kept: _Kept) -> None:
        self.projection = projection
        self.position = kept.generation.position
        self.reached = kept.generation.position
        self.tables: Tables = defaultdict(dict, deepcopy(kept.tables))
        self.letters: list[DeadLetter] = []
        self.effects: dict[UUID, Effect] = {}

    def work_for(self, event: Any) -> MemoryWork:
        return MemoryWork(self, event)

    def advance(self, position: int) -> None:
        self.reached = max(self.reached, position)

    def bury(self, letter: DeadLetter) -> None:
        self.letters.append(letter)


class MemoryPlace:
    """Keeps read models in this process. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._sending = threading.Lock()
        self._kept: dict[str, list[_Kept]] = {}
        self._due: dict[str, dict[UUID, _Due]] = defaultdict(dict)
        self._failed: dict[str, list[FailedEffect]] = defaultdict(list)
        self._fired: dict[tuple[str, UUID], datetime] = {}

    def tables(self, name: str) -> Tables:
        """The tables that readers see."""
        with self._lock:
            return deepcopy(self._live(name).tables)

    def prepare(self, projection: Projection) -> None:
        with self._lock:
            if projection.name not in self._kept:
                self._kept[projection.name] = [_Kept(_first(projection, 1, GenerationState.LIVE))]

    def generations(self, name: str) -> tuple[Generation, ...]:
        with self._lock:
            found = [each.generation for each in self._kept.get(name, ())]
        return tuple(each for each in found if each.state is not GenerationState.RETIRED)

    @contextmanager
    def begin(self, projection: Projection, number: int, *, alone: bool) -> Iterator[MemoryBatch]:  # noqa: ARG002
        kept = self._of(projection.name, number)
        with kept.lock:
            check_generation(kept.generation, projection)
            batch = MemoryBatch(projection, kept)
            yield batch
            with self._lock:
                kept.tables = batch.tables
                kept.letters += batch.letters
                kept.generation = replace(kept.generation, position=batch.reached)
                self._keep_effects(projection, kept, batch.effects)

    def build(self, projection: Projection) -> Generation:
        with self._lock:
            all_kept = self._kept[projection.name]
            for kept in all_kept:
                if kept.generation.state is GenerationState.BUILDING:
                    if kept.generation.version == projection.version:
                        return kept.generation
                    _retire(kept)
            made = _Kept(_first(projection, len(all_kept) + 1, GenerationState.BUILDING))
            all_kept.append(made)
            return made.generation

    def swap(self, projection: Projection, number: int, catch_up: Callable[[int], None]) -> None:
        former = self._live(projection.name)
        with former.lock:
            catch_up(former.generation.position)
            building = self._of(projection.name, number)
            with building.lock, self._lock:
                check_generation(building.generation, projection)
                _retire(former)
                building.generation = replace(building.generation, state=GenerationState.LIVE)
                after = former.generation.position
                self._keep_due(each for each in building.held.values() if each.position > after)
                building.held = {}

    def clear_retired(self, name: str) -> None:
        with self._lock:
            for kept in self._kept[name]:
                if kept.generation.state is GenerationState.RETIRED:
                    kept.tables, kept.letters = {}, []

    def dead_letters(self, name: str) -> list[DeadLetter]:
        with self._lock:
            found = [letter for kept in self._kept.get(name, ()) for letter in kept.letters]
        return sorted(found, key=lambda letter: (letter.position, letter.generation))

    def dead_letter_count(self, name: str) -> int:
        return len(self.dead_letters(name))

    def fire(self, name: str, send: Callable[[Effect], None], *, attempt_count_max: int) -> bool:
        with self._sending:
            with self._lock:
                due = self._due[name]
                if not due:
                    return False
                each = min(
                    due.values(), key=lambda one: (one.attempt_count, one.effect.position, one.effect.id)
                )
            try:
                send(each.effect)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is kept with the effect
                self._note_failure(each, f"{type(error).__name__}: {error}", attempt_count_max)
            else:
                with self._lock:
                    due.pop(each.effect.id, None)
                    self._fired[name, each.effect.id] = datetime.now(UTC)
        return True

    def failed_effects(self, name: str) -> list[FailedEffect]:
        with self._lock:
            return list(self._failed[name])

    def fired_at(self, name: str, effect_id: UUID) -> datetime | None:
        with self._lock:
            return self._fired.get((name, effect_id))

    def _note_failure(self, due: _Due, cause: str, attempt_count_max: int) -> None:
        with self._lock:
            due.attempt_count += 1
            if due.attempt_count >= attempt_count_max:
                self._due[due.effect.projection].pop(due.effect.id, None)
                self._failed[due.effect.projection].append(
                    FailedEffect(effect=due.effect, cause=cause, attempt_count=due.attempt_count)
                )

    def _keep_effects(self, projection: Projection, kept: _Kept, effects: Mapping[UUID, Effect]) -> None:
        is_live = kept.generation.state is GenerationState.LIVE
        after = projection.effects_after
        if not is_live:
            after = max(after, self._live(projection.name).generation.position)
        wanted = [each for each in effects.values() if each.position > after]
        if is_live:
            self._keep_due(wanted)
        else:
            kept.held |= {each.id: each for each in wanted}

    def _keep_due(self, effects: Iterator[Effect] | list[Effect]) -> None:
        for each in effects:
            self._due[each.projection].setdefault(each.id, _Due(each))

    def _of(self, name: str, number: int) -> _Kept:
        with self._lock:
            return self._kept[name][number - 1]

    def _live(self, name: str) -> _Kept:
        with self._lock:
            return next(each for each in self._kept[name] if each.generation.state is GenerationState.LIVE)


def _first(projection: Projection, number: int, state: GenerationState) -> Generation:
    return Generation(
        projection=projection.name, number=number, version=projection.version, position=0, state=state
    )


def _retire(kept: _Kept) -> None:
    kept.generation = replace(kept.generation, state=GenerationState.RETIRED)
