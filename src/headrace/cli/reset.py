"""Where `headrace groups reset` moves a group to."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from confluent_kafka.admin import AdminClient

from headrace.cli.offsets import (
    OffsetRange,
    Place,
    existing_topic,
    offset_ranges,
    offsets_since,
    places_of,
)
from headrace.cli.times import parse_duration_ms, parse_moment_ms
from headrace.errors import ConfigError

Kind = Literal["earliest", "latest", "offset", "moment", "shift"]


@dataclass(frozen=True, slots=True)
class Target:
    """A place to move to, the same for all partitions."""

    kind: Kind
    number: int = 0
    """The offset, the moment in milliseconds, or by how many records to shift."""

    @classmethod
    def parse(
        cls,
        *,
        to_earliest: bool,
        to_latest: bool,
        to_offset: int | None,
        to_time: str | None,
        by_duration: str | None,
        shift_by: int | None,
    ) -> Target:
        """Read the options, of which exactly one must be given."""
        now_ms = time.time_ns() // 1_000_000
        targets = []
        if to_earliest:
            targets.append(cls("earliest"))
        if to_latest:
            targets.append(cls("latest"))
        if to_offset is not None:
            targets.append(cls("offset", to_offset))
        if to_time is not None:
            targets.append(cls("moment", parse_moment_ms(to_time, now_ms=now_ms)))
        if by_duration is not None:
            targets.append(cls("moment", now_ms - parse_duration_ms(by_duration)))
        if shift_by is not None:
            targets.append(cls("shift", shift_by))
        if len(targets) != 1:
            raise ConfigError(
                "say where to move the group with exactly one of --to-earliest, --to-latest, --to-offset, "
                "--to-time, --by-duration and --shift-by"
            )
        return targets[0]

    def offset(self, now: int | None, there: OffsetRange, since: int | None) -> int:
        """The new offset of a partition, within what it has."""
        wanted = {
            "earliest": there.first,
            "latest": there.next,
            "offset": self.number,
            "moment": there.next if since is None else since,
            "shift": (there.first if now is None else now) + self.number,
        }[self.kind]
        return min(max(wanted, there.first), there.next)


def places_to_reset(
    admin: AdminClient,
    topics: list[str],
    committed: Mapping[Place, int],
    *,
    all_topics: bool,
    bootstrap: str,
) -> list[Place]:
    """The partitions that are asked for."""
    if all_topics == bool(topics):
        raise ConfigError("say what to move with --topic NAME, or with --all-topics")
    if all_topics:
        if not committed:
            raise ConfigError("the group has committed nothing yet: name its topics with --topic")
        return sorted(committed)
    return sorted({place for text in topics for place in _places(admin, text, bootstrap)})


def plan_reset(
    admin: AdminClient,
    places: list[Place],
    committed: Mapping[Place, int],
    target: Target,
    bootstrap: str,
) -> dict[Place, int]:
    """The new offset of each partition."""
    ranges = offset_ranges(admin, places, bootstrap)
    since: Mapping[Place, int] = {}
    if target.kind == "moment":
        since = offsets_since(admin, places, target.number, bootstrap)
    return {place: target.offset(committed.get(place), ranges[place], since.get(place)) for place in places}


def _places(admin: AdminClient, text: str, bootstrap: str) -> list[Place]:
    name, _, numbers = text.partition(":")
    places = places_of({name: existing_topic(admin, name, bootstrap)})
    if not numbers:
        return places
    if not all(number.isdecimal() for number in numbers.split(",")):
        raise ConfigError(f"--topic {text!r} is neither a topic nor TOPIC:0,1,2")
    asked = {(name, int(number)) for number in numbers.split(",")}
    unknown = asked.difference(places)
    if unknown:
        raise ConfigError(f"topic {name} has partitions 0 to {len(places) - 1}, not {min(unknown)[1]}")
    return sorted(asked)
