"""What happens to bytes: they are cut short, flipped, lost, doubled, or say that more follows than does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from random import Random

HUGE_LENGTHS: Final = (
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\x7f\xff",
    b"\x80\x00",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x07",
    b"\xff\xff\xff\xff\xff\xff",
    b"\x00\x01\x86\xa0",
)
"""As an int32, an int16 and a varint; the last one is the most elements that an array may have."""


def damage(data: bytes, random: Random, *, after: int = 0) -> bytes:
    """The bytes with some damage, all of it after a place in them."""
    for _ in range(random.choice((1, 1, 2, 4))):
        place = random.randint(after, max(len(data), after))
        kind = random.randrange(6)
        if kind == 0:
            data = data[:place]
        elif kind == 1:
            data = data[:place] + bytes((random.randrange(256),)) + data[place + 1 :]
        elif kind == 2:
            data = data[:place] + random.randbytes(random.randint(1, 9)) + data[place:]
        elif kind == 3:
            data = data[:place] + data[place + random.randint(1, 9) :]
        elif kind == 4:
            data = data[:place] + data[place : place + 20] + data[place:]
        else:
            huge = random.choice(HUGE_LENGTHS)
            data = data[:place] + huge + data[place + len(huge) :]
    return data
