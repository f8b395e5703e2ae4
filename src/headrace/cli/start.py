"""Where `headrace consume` begins to read."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, TopicPartition
from confluent_kafka.admin import AdminClient

from headrace.cli.offsets import Place, existing_topic, offset_ranges, offsets_since, places_of
from headrace.cli.times import parse_moment_ms
from headrace.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A place in every partition; with nothing given, the end."""

    from_beginning: bool = False
    offset: int | None = None
    offset_by_partition: dict[int, int] = field(default_factory=dict)
    moment_ms: int | None = None
    tail: int | None = None

    @classmethod
    def parse(
        cls, *, from_beginning: bool, offsets: list[str] | None, moment: str | None, tail: int | None
    ) -> Start:
        """Read the options, of which one may be given."""
        given = [
            name
            for name, is_given in (
                ("--from-beginning", from_beginning),
                ("--from-offset", bool(offsets)),
                ("--from-time", moment is not None),
                ("--tail", tail is not None),
            )
            if is_given
        ]
        if len(given) > 1:
            raise ConfigError(f"{' and '.join(given)} can't be used together: choose one")
        offset, by_partition = _parse_offsets(offsets or [])
        moment_ms = None if moment is None else parse_moment_ms(moment, now_ms=time.time_ns() // 1_000_000)
        return cls(
            from_beginning=from_beginning,
            offset=offset,
            offset_by_partition=by_partition,
            moment_ms=moment_ms,
            tail=tail,
        )

    @property
    def is_a_place(self) -> bool:
        """Whether a place between the beginning and the end is asked for."""
        is_offset = self.offset is not None or bool(self.offset_by_partition)
        return is_offset or self.moment_ms is not None or self.tail is not None


def partitions_to_read(
    admin: AdminClient, topic: str, partitions: list[int] | None, start: Start, bootstrap: str
) -> list[TopicPartition]:
    """The partitions, each with the offset to begin at."""
    places = places_of({topic: existing_topic(admin, topic, bootstrap)})
    asked = {*(partitions or ()), *start.offset_by_partition}
    unknown = asked.difference(number for _, number in places)
    if unknown:
        raise ConfigError(f"topic {topic} has partitions 0 to {len(places) - 1}, not {min(unknown)}")
    if asked and (partitions or start.offset is None):
        places = [place for place in places if place[1] in asked]
    offsets = _offsets(admin, places, start, bootstrap)
    return [TopicPartition(*place, offsets[place]) for place in places]


def _offsets(admin: AdminClient, places: list[Place], start: Start, bootstrap: str) -> dict[Place, int]:
    if start.moment_ms is not None:
        return offsets_since(admin, places, start.moment_ms, bootstrap)
    if start.tail is not None:
        ranges = offset_ranges(admin, places, bootstrap)
        return {place: max(ranges[place].first, ranges[place].next - start.tail) for place in places}
    if start.offset is not None or start.offset_by_partition:
        return _checked_offsets(admin, places, start, bootstrap)
    return dict.fromkeys(places, OFFSET_BEGINNING if start.from_beginning else OFFSET_END)


def _checked_offsets(
    admin: AdminClient, places: list[Place], start: Start, bootstrap: str
) -> dict[Place, int]:
    ranges = offset_ranges(admin, places, bootstrap)
    offsets = {}
    for place in places:
        offset = start.offset_by_partition.get(place[1], start.offset)
        first, end = ranges[place]
        if offset is None or not first <= offset <= end:
            raise ConfigError(
                f"partition {place[1]} of {place[0]} has offsets {first} to {end}, not {offset}: "
                "name a place for one partition with --from-offset PARTITION:OFFSET"
            )
        offsets[place] = offset
    return offsets


def _parse_offsets(texts: list[str]) -> tuple[int | None, dict[int, int]]:
    everywhere = None
    by_partition = {}
    for text in texts:
        partition, colon, offset = text.rpartition(":")
        if not offset.isdecimal() or (colon and not partition.isdecimal()):
            raise ConfigError(f"--from-offset {text!r} is neither an offset nor PARTITION:OFFSET")
        if colon:
            by_partition[int(partition)] = int(offset)
        else:
            everywhere = int(offset)
    return everywhere, by_partition
