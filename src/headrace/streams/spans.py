"""A part of the log: for each partition, from an offset on, and up to another. No I/O.

A bound is a moment, an offset for each partition, or open. A moment stands for the first record that is as
new as that, in each partition: where records are out of order, older ones behind it belong to the part as
well, and where there is none so new, the partition's end is meant.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from headrace.errors import ConfigError
from headrace.streams.progress_log import Offsets, Place

_OFFSET: Final = re.compile(r"(?:(?P<topic>[A-Za-z0-9._-]+):)?(?P<partition>\d+):(?P<offset>\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """Where a part of the log begins or ends. With nothing given, it is open."""

    moment_ms: int | None = None
    offsets: Mapping[tuple[str | None, int], int] = field(default_factory=dict)
    """By topic and partition; the topic is None where there is only one."""
    words: str | None = field(default=None, compare=False)
    """How a moment was told: `7d` is another one each time."""

    @property
    def is_open(self) -> bool:
        """Whether it is the log's own end."""
        return self.moment_ms is None and not self.offsets

    def __str__(self) -> str:
        """As it is given; empty if it is open."""
        if self.moment_ms is not None:
            return self.words or f"{self.moment_ms} ms"
        named = sorted(
            (topic or "", partition, offset) for (topic, partition), offset in self.offsets.items()
        )
        return ",".join(
            f"{topic}:{partition}:{offset}".removeprefix(":") for topic, partition, offset in named
        )


OPEN: Final = Bound()


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A part of the log. Both have the same partitions, and no start is behind its end."""

    starts: Offsets
    ends: Offsets

    @property
    def offset_count(self) -> int:
        """How many offsets it has: at least as many as records, because transactions have markers."""
        return sum(self.ends[place] - self.starts[place] for place in self.starts)

    def of(self, topics: Collection[str]) -> Span:
        """The part of it that lies in these topics."""
        return Span(
            starts={place: offset for place, offset in self.starts.items() if place[0] in topics},
            ends={place: offset for place, offset in self.ends.items() if place[0] in topics},
        )


def parse_offsets_bound(text: str) -> Bound | None:
    """`0:17,1:20`, or `orders:0:17` where several topics are read; None if it is something else."""
    offsets = {}
    for each in text.split(","):
        found = _OFFSET.fullmatch(each.strip())
        if found is None:
            return None
        offsets[found["topic"], int(found["partition"])] = int(found["offset"])
    return Bound(offsets=offsets)


def resolve_span(
    firsts: Offsets,
    ends: Offsets,
    *,
    begin: Bound = OPEN,
    finish: Bound = OPEN,
    begin_at: Offsets | None = None,
    finish_at: Offsets | None = None,
) -> Span:
    """The part between two bounds. `begin_at` and `finish_at` are what moments mean, asked of the broker."""
    if begin.moment_ms is not None and finish.moment_ms is not None and begin.moment_ms > finish.moment_ms:
        raise ConfigError("--from is later than --to: nothing lies between them")
    starts = _resolve(begin, firsts, ends, begin_at or {}, default=firsts)
    stops = _resolve(finish, firsts, ends, finish_at or {}, default=ends)
    return Span(starts=starts, ends={place: max(starts[place], stops[place]) for place in starts})


def _resolve(bound: Bound, firsts: Offsets, ends: Offsets, at: Offsets, *, default: Offsets) -> Offsets:
    if bound.is_open:
        return dict(default)
    if bound.moment_ms is not None:
        return {place: min(max(at.get(place, end), firsts[place]), end) for place, end in ends.items()}
    named = _places(bound.offsets, firsts)
    for place, offset in named.items():
        if not firsts[place] <= offset <= ends[place]:
            raise ConfigError(
                f"partition {place[1]} of {place[0]} has offsets {firsts[place]} to {ends[place]}, and "
                f"{offset} is none of them"
            )
    return {place: named.get(place, default[place]) for place in firsts}


def _places(offsets: Mapping[tuple[str | None, int], int], known: Offsets) -> dict[Place, int]:
    topics = sorted({topic for topic, _ in known})
    named = {}
    for (topic, partition), offset in offsets.items():
        if topic is None and len(topics) != 1:
            raise ConfigError(
                f"{partition}:{offset} is an offset of which topic? Write "
                f"{' or '.join(f'{name}:{partition}:{offset}' for name in topics)}"
            )
        place = (topics[0] if topic is None else topic, partition)
        if place not in known:
            have = ", ".join(f"{name}:{number}" for name, number in sorted(known))
            raise ConfigError(f"{place[0]}:{place[1]} is none of the partitions that are read: {have}")
        named[place] = offset
    return named


def missing_records(wanted: Span, firsts: Offsets) -> dict[Place, int]:
    """Of which partitions the beginning is no longer there, and up to which offset."""
    return {
        place: min(firsts[place], wanted.ends[place])
        for place, start in wanted.starts.items()
        if place in firsts and start < firsts[place] and start < wanted.ends[place]
    }


def pieces_of(span: Span, count: int) -> list[Span]:
    """The span in so many pieces of about the same size, one behind the other in each partition."""
    sizes = {place: span.ends[place] - start for place, start in span.starts.items()}
    cuts = [
        {place: span.starts[place] + size * number // count for place, size in sizes.items()}
        for number in range(count + 1)
    ]
    return [Span(starts=begin, ends=end) for begin, end in pairwise(cuts)]
