"""How a process forgets a person.

States and commands are kept in clear, for a process has to go on with them. So beside them stands which texts
of whom the events had that an instance was told. When the log says that a person is forgotten,

1. these texts are replaced in the instance's state by what a forgotten text reads as: a text that is the
   same, and, from four characters on, the words within a longer one. The process goes on with all the rest:
   to drop an instance could leave money between two accounts;
2. what its commands carried, and why they were refused, is erased. A command that is still to be executed
   stays as it is until then, because the store knows it by what it says;
3. then the texts themselves are dropped.

Numbers, and what the process has made of a text, such as its initials, are not found like this. A state that
could not be read any more, because a text in it is of a stricter type, stays. `verify_forgotten` names both.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any, Final

import msgspec

from headrace.events.codec import EventCodec
from headrace.events.event_type import FORGOTTEN

WORD_CHARACTERS_MIN: Final = 4
"""Shorter texts are not looked for within others: they may be part of the name of a stream."""


def personal_texts(codec: EventCodec, event: Any) -> dict[str, set[str]]:
    """The texts in the personal fields of an event, by whose they are."""
    described = codec.type_of(event)
    found: dict[str, set[str]] = {}
    for name, subject_of in described.personal.items():
        value = getattr(event, name)
        if value != described.forgotten.get(name):
            found.setdefault(subject_of(event), set()).update(_texts(msgspec.to_builtins(value)))
    return found


def without(data: bytes, texts: Collection[str]) -> bytes:
    """A JSON document in which none of the texts stands."""
    wholes = frozenset(texts)
    longer = sorted((each for each in wholes if len(each) >= WORD_CHARACTERS_MIN), key=len, reverse=True)
    within = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, longer))})(?!\w)") if longer else None

    def cleaned(value: Any) -> Any:
        match value:
            case str() if value in wholes:
                return FORGOTTEN
            case str() if within is not None:
                return within.sub(FORGOTTEN, value)
            case list():
                return [cleaned(each) for each in value]
            case dict():
                return {cleaned(key): cleaned(each) for key, each in value.items()}
            case _:
                return value

    return msgspec.json.encode(cleaned(msgspec.json.decode(data)))


def _texts(value: Any) -> Iterator[str]:
    match value:
        case str() if value:
            yield value
        case list() | tuple():
            for each in value:
                yield from _texts(each)
        case dict():
            for each in value.values():
                yield from _texts(each)
        case _:
            pass
