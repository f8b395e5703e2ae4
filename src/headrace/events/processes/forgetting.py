"""How a process forgets a person.

States and commands are kept in clear, for a process has to go on with them. So beside them stands of whom an
instance was told, and which of the texts that it was told it still has: those that stand in its state, and
all of them while a command is to be executed, since a refusal may bring them back. When the instance has
ended and its commands are settled, no text is kept any more. When the log says that a person is forgotten,

1. these texts are replaced in the instance's state by what a forgotten text reads as: a text that is the
   same, and, from four characters on, the words within a longer one. The process goes on with all the rest:
   to drop an instance could leave money between two accounts;
2. what its commands carried, and why they were refused, is erased. A command that is still to be executed
   stays as it is until then, because the store knows it by what it says;
3. then it is dropped that the instance was told of the person.

Where a state can't be read with the replacement, because a text in it is of a stricter type, None is tried,
and what events of this type read as. A place that takes none of them stays, and so does the name of a stream,
because the next command has to go to the same one. Of these it is kept that they stand there: it is tried
again whenever the instance goes on, it is logged, and `ProcessManager.not_forgotten` names the instance.

Numbers, and what the process has made of a text, such as its initials, are not found like this.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import fields, is_dataclass
from itertools import count
from typing import Any, Final

import msgspec

from headrace.events.codec import EventCodec
from headrace.events.event_type import FORGOTTEN

WORD_CHARACTERS_MIN: Final = 4
"""Shorter texts are not looked for within others: they may be part of any word or number."""

Change = Callable[[int, str, bool], Any]
"""What becomes of a place: given its number, what stands there, and whether it is the key of a mapping."""


def personal_texts(codec: EventCodec, event: Any) -> dict[str, set[str]]:
    """The texts in the personal fields of an event, by whose they are."""
    described = codec.type_of(event)
    found: dict[str, set[str]] = {}
    for name, subject_of in described.personal.items():
        value = getattr(event, name)
        if value != described.forgotten.get(name):
            found.setdefault(subject_of(event), set()).update(_texts(value))
    return found


def placeholders(codec: EventCodec) -> tuple[str, ...]:
    """What personal fields of stricter types than text read as once the person is forgotten."""
    declared = [value for each in codec.by_name.values() for value in each.forgotten.values()]
    return tuple(sorted({text for value in declared for text in _texts(value)}))


def standing(data: bytes, texts: Collection[str]) -> frozenset[str]:
    """Which of the texts stand in a JSON document."""
    said = set(_said(msgspec.json.decode(data))) if texts else set[str]()
    return frozenset(text for text in texts if any(map(_Finder([text]).finds, said)))


def without(
    data: bytes,
    texts: Collection[str],
    *,
    fits: Callable[[bytes], bool] = lambda _: True,
    stays: Callable[[str], bool] = lambda _: False,
    instead: Collection[str] = (),
) -> bytes:
    """A JSON document in which none of the texts stands, as far as it fits then.

    `stays` names what is left alone whatever stands in it, and `instead` what else may take a text's place.
    """
    document = msgspec.json.decode(data)
    finder = _Finder(texts)
    places = list[tuple[str, bool]]()

    def is_place(said: str) -> bool:
        return finder.finds(said) and not stays(said)

    def note(_: int, said: str, is_key: bool) -> str:
        places.append((said, is_key))
        return said

    def with_(chosen: Mapping[int, Any]) -> bytes:
        changed = _changed(document, is_place, lambda number, said, _: chosen.get(number, said), count())
        return msgspec.json.encode(changed)

    _changed(document, is_place, note, count())
    choices = [[finder.replaced(said), *_others(said, finder, instead, is_key=key)] for said, key in places]
    return with_(_fitting(choices, lambda chosen: fits(with_(chosen))))


def _fitting(choices: list[list[Any]], fits: Callable[[Mapping[int, Any]], bool]) -> dict[int, Any]:
    """What to put into each place: the first of its choices with which the whole fits, or nothing.

    All places are tried at once, then each half by itself, and so on: most states take them all.
    """
    chosen: dict[int, Any] = {}

    def settle(start: int, end: int) -> None:
        first = chosen | {number: choices[number][0] for number in range(start, end)}
        if fits(first):
            chosen.update(first)
        elif end - start > 1:
            middle = (start + end) // 2
            settle(start, middle)
            settle(middle, end)
        else:
            others = (chosen | {start: each} for each in choices[start][1:])
            chosen.update(next((each for each in others if fits(each)), {}))

    if choices:
        settle(0, len(choices))
    return chosen


def _others(said: str, finder: _Finder, instead: Collection[str], *, is_key: bool) -> list[str | None]:
    """What may take the place of something that can't read as forgotten."""
    return [*(() if is_key else (None,)), *(instead if said in finder.wholes else ())]


def _changed(value: Any, is_place: Callable[[str], bool], change: Change, numbers: Iterator[int]) -> Any:
    match value:
        case str() if is_place(value):
            return change(next(numbers), value, False)
        case list():
            return [_changed(each, is_place, change, numbers) for each in value]
        case dict():
            return _changed_mapping(value, is_place, change, numbers)
        case _:
            return value


def _changed_mapping(
    value: dict[str, Any], is_place: Callable[[str], bool], change: Change, numbers: Iterator[int]
) -> dict[str, Any]:
    """Keys that would be the same are numbered: what stands under each of them is kept."""
    taken = {key for key in value if not is_place(key)}
    changed: dict[str, Any] = {}
    for key, each in value.items():
        name = key
        if is_place(key):
            wanted = change(next(numbers), key, True)
            name = next(free for free in _numbered(wanted) if free not in taken)
            taken.add(name)
        changed[name] = _changed(each, is_place, change, numbers)
    return changed


def _numbered(name: str) -> Iterator[str]:
    yield name
    for number in count(2):
        yield f"{name} {number}"


class _Finder:
    """Finds texts where they stand alone, and the longer ones as words."""

    def __init__(self, texts: Collection[str]) -> None:
        self.wholes = frozenset(texts) - {FORGOTTEN}
        words = sorted(
            (each for each in self.wholes if len(each) >= WORD_CHARACTERS_MIN), key=len, reverse=True
        )
        # What reads as forgotten is passed by as a whole: somebody's text may be a word of it.
        self._words = (
            re.compile(rf"{re.escape(FORGOTTEN)}|(?<!\w)(?:{'|'.join(map(re.escape, words))})(?!\w)")
            if words
            else None
        )

    def finds(self, said: str) -> bool:
        return self.replaced(said) != said

    def replaced(self, said: str) -> str:
        if said in self.wholes:
            return FORGOTTEN
        return said if self._words is None else self._words.sub(FORGOTTEN, said)


def _said(value: Any) -> Iterator[str]:
    """The texts of a JSON document, keys among them."""
    match value:
        case str():
            yield value
        case list():
            for each in value:
                yield from _said(each)
        case dict():
            for key, each in value.items():
                yield key
                yield from _said(each)
        case _:
            pass


def _texts(value: Any) -> Iterator[str]:
    """The texts of a field, as JSON has them. Keys are texts, but for those that are names of fields."""
    match value:
        case list() | tuple() | set() | frozenset():
            for each in value:
                yield from _texts(each)
        case dict():
            for key, each in value.items():
                yield from _texts(key)
                yield from _texts(each)
        case msgspec.Struct():
            for name in value.__struct_fields__:
                yield from _texts(getattr(value, name))
        case _ if is_dataclass(value):
            for field in fields(value):
                yield from _texts(getattr(value, field.name))
        case _:
            text = msgspec.to_builtins(value)
            if isinstance(text, str) and text != FORGOTTEN:
                # PostgreSQL keeps no NUL; what stands before and after it is found all the same.
                yield from filter(None, text.split("\0"))
