"""Reading what was written as an older version of an event.

An upcast takes the data of one version of one type, as a dictionary, and gives what the same fact is written
as since: one event or several, of the next version, or of another type. Upcasts are applied one after the
other until all that is left is current. What is stored never changes.

    upcast("AccountOpened", 1, renamed(name="owner"))            field name is called owner since version 2
    upcast("AccountOpened", 2, added(currency="EUR"))            version 3 has a currency
    upcast("AccountMoved", 1, into("AddressChanged", 1))         the type has another name
    upcast("OpenedWithDeposit", 1, split_it)                     def split_it(data) -> list[Written]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from headrace.errors import EventsError, UnreadableEvents

Data = dict[str, Any]

STEPS_MAX: Final = 100
"""How many upcasts may follow on each other; more is a circle."""


class Written(NamedTuple):
    """An event as it is written: type, version, and data as JSON has it."""

    type: str
    version: int
    data: Data


Change = Callable[[Data], "Data | Iterable[Written]"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Upcast:
    """Reads one version of one type."""

    type: str
    version: int
    change: Change
    leads_to: tuple[tuple[str, int], ...]
    """The types and versions that it may give."""


def upcast(
    type_: str, version: int, change: Change, *, leads_to: Iterable[tuple[str, int]] | None = None
) -> Upcast:
    """Read a version of a type by a change of its data.

    A change that gives a dictionary leads to the next version of the type. One that gives several events, or
    one of another type, gives `Written` values; `leads_to` says which types and versions they may have.
    """
    known = getattr(change, "leads_to", None)
    ways = tuple(leads_to) if leads_to is not None else known or ((type_, version + 1),)
    return Upcast(type=type_, version=version, change=change, leads_to=ways)


def renamed(**names: str) -> Change:
    """Fields that have another name since: `renamed(old="new")`."""

    def change(data: Data) -> Data:
        return {names.get(name, name): value for name, value in data.items()}

    return change


def added(**defaults: Any) -> Change:
    """Fields that are there since, with the value that all older events have."""

    def change(data: Data) -> Data:
        return {**defaults, **data}

    return change


def into(type_: str, version: int) -> Change:
    """The same data under another type."""

    def change(data: Data) -> list[Written]:
        return [Written(type_, version, data)]

    change.leads_to = ((type_, version),)  # type: ignore[attr-defined]  # read by upcast()
    return change


class Upcasts:
    """All upcasts of a store, and the current versions of its types."""

    def __init__(self, current: Mapping[str, int], upcasts: Iterable[Upcast]) -> None:
        self._current = dict(current)
        self._by_origin: dict[tuple[str, int], Upcast] = {}
        for each in upcasts:
            origin = (each.type, each.version)
            if origin in self._by_origin:
                raise EventsError(f"version {each.version} of {each.type} has two upcasts: keep one")
            if current.get(each.type) == each.version:
                raise EventsError(f"version {each.version} of {each.type} is current: nothing can follow it")
            self._by_origin[origin] = each

    def changes(self) -> list[Change]:
        """What is done to data, in an order that is always the same."""
        return [self._by_origin[origin].change for origin in sorted(self._by_origin)]

    def is_current(self, type_: str, version: int) -> bool:
        """Whether nothing has to be changed."""
        return self._current.get(type_) == version

    def apply(self, written: Written) -> list[Written]:
        """What an event is written as today, in the order in which it is to be read."""
        done: list[Written] = []
        left = [written]
        for _ in range(STEPS_MAX):
            if not left:
                return done
            each = left.pop(0)
            if self.is_current(each.type, each.version):
                done.append(each)
                continue
            step = self._by_origin.get((each.type, each.version))
            if step is None:
                raise unreadable([(each.type, each.version)], self._current)
            left = [*_changed(step, each.data), *left]
        raise EventsError(f"upcasts of version {written.version} of {written.type} don't come to an end")

    def missing(self, stored: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
        """Which types and versions would be met, reading those, that nothing reads."""
        lost: list[tuple[str, int]] = []
        seen: set[tuple[str, int]] = set()
        left = sorted(stored)
        while left:
            each = left.pop()
            if each in seen or self.is_current(*each):
                continue
            seen.add(each)
            step = self._by_origin.get(each)
            if step is None:
                lost.append(each)
            else:
                left.extend(step.leads_to)
        return sorted(lost)


def unreadable(lost: Iterable[tuple[str, int]], current: Mapping[str, int]) -> UnreadableEvents:
    """The error that names them."""
    named = [
        f"version {version} of {name}" + (f" (current is {current[name]})" if name in current else "")
        for name, version in lost
    ]
    return UnreadableEvents(
        f"events are stored that nothing reads: {', '.join(named)}. Give the store their type, "
        "or an upcast that leads to a current one"
    )


def _changed(step: Upcast, data: Data) -> list[Written]:
    changed = step.change(dict(data))
    if isinstance(changed, dict):
        return [Written(step.type, step.version + 1, changed)]
    given = [Written(*each) for each in changed]
    for each in given:
        if (each.type, each.version) not in step.leads_to:
            raise EventsError(
                f"the upcast of version {step.version} of {step.type} gave version {each.version} of "
                f"{each.type}: name it in leads_to"
            )
    return given
