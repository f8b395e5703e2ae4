"""The last act of a story: files of sealed segments are damaged, and somebody reads everything once more.

The disk flips a bit, loses the end of a file, writes a stretch over, or has one twice, between two lives of
the broker or when the next one has just begun. What must hold then:

- Batches whose bytes lie unchanged at their place are served as ever.
- For each offset of a batch that is not what it was, the reader gets an error, and asks for the next one.
- Nobody gets anything else: the anomaly checker finds values that are not those that were written, and
  readers that were led past some without having been told.

What the checksum does not cover may be judged either way as long as the records are right: the place in the
log, and the leader's epoch. So may batches that have only moved within their file. Damage to an index costs
nothing: it is made anew from the batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kio.schema.errors import ErrorCode

from headrace.log.batch import read_header
from headrace.testing.simulation.broker import DATA_DIR
from headrace.testing.simulation.consumers import ALL_BYTES, LastReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path
    from random import Random

    from headrace.testing.disk import SimulatedDisk
    from headrace.testing.simulation.client import World
    from headrace.testing.simulation.consumers import Fetched
    from headrace.testing.simulation.topics import Partition

INDEXES: Final = ("index", "timeindex", "txnindex")
INDEX_CHANCE: Final = 0.2
STRETCH_BYTES_MAX: Final = 200
LENGTH: Final = slice(8, 12)
SIGNED: Final = slice(16, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """What became of one segment: offsets that must be readable, and offsets that must not be."""

    path: Path
    what: str
    sound: frozenset[int]
    broken: frozenset[int]


class Vandal:
    """Damages files of sealed segments."""

    def __init__(self, disk: SimulatedDisk, random: Random, trace: Callable[[str], None]) -> None:
        self._disk = disk
        self._random = random
        self._trace = trace

    def sealed(self, partition: Partition) -> list[Path]:
        """The segments of a partition that have been sealed: their indexes are there."""
        directory = DATA_DIR / "log" / f"{partition.topic.name}-{partition.index}"
        names = self._disk.names(directory)
        return [directory / name for name in names if name.endswith(".log") and _seal(name) in names]

    def damage(self, path: Path) -> Damage:
        """Damage a segment, or one of its indexes."""
        whole = self._disk.content(path)
        batches = list(_batches(whole))
        if self._random.random() < INDEX_CHANCE:
            index_path = path.with_suffix(f".{self._random.choice(INDEXES)}")
            what, content = self._spoil(self._disk.content(index_path))
            self._disk.overwrite(index_path, content)
            changed, path = whole, index_path
        else:
            what, changed = self._spoil(whole)
            self._disk.overwrite(path, changed)
        self._trace(f"the disk damages {path}: {what}")
        return Damage(
            path=path,
            what=what,
            sound=_offsets(batches, lambda at, batch: changed[at : at + len(batch)] == batch),
            broken=_offsets(batches, lambda at, batch: _is_broken(changed, at, batch)),
        )

    def _spoil(self, content: bytes) -> tuple[str, bytes]:
        if not content:
            return "nothing was there", content
        begin = self._random.randrange(len(content))
        end = min(begin + self._random.randint(1, STRETCH_BYTES_MAX), len(content))
        match self._random.choice(("flip", "flip", "cut", "smear", "repeat", "push")):
            case "flip":
                bit = 1 << self._random.randrange(8)
                spoilt = content[:begin] + bytes([content[begin] ^ bit]) + content[begin + 1 :]
                return f"byte {begin} has another bit", spoilt
            case "cut":
                return f"it ends at byte {begin}", content[:begin]
            case "smear":
                smear = self._random.choice((bytes(end - begin), self._random.randbytes(end - begin)))
                return f"bytes {begin} to {end} are written over", content[:begin] + smear + content[end:]
            case "repeat":
                return f"bytes {begin} to {end} come twice", content[:end] + content[begin:]
            case _:
                pushed = (content[:end] + content[begin:])[: len(content)]
                return f"bytes {begin} to {end} come twice, and push the end out", pushed


class DamageReader(LastReader):
    """Reads everything there is, one step further at each error."""

    def __init__(self, world: World, random: Random, partitions: list[Partition]) -> None:
        super().__init__(world, "last-of-all", random, partitions, is_read_committed=False)
        self.size_bytes_max = random.choice((1, 500, ALL_BYTES))
        self.refused: dict[Partition, set[int]] = {each: set() for each in partitions}

    async def on_error(self, fetched: Fetched) -> None:
        """Note that an offset is damaged."""
        if fetched.error_code is not ErrorCode.corrupt_message:
            await super().on_error(fetched)
            return
        offset = self.positions[fetched.partition]
        self.refused[fetched.partition].add(offset)
        self.place(fetched.partition, offset + 1)


def misjudged(damage: Damage, refused: set[int]) -> Iterator[str]:
    """What was refused though it is sound, and what was not though it is broken."""
    if lost := sorted(damage.sound & refused):
        yield f"{damage.path}: {damage.what}: offsets {lost} are sound, and were refused"
    if served := sorted(damage.broken - refused):
        yield f"{damage.path}: {damage.what}: offsets {served} are broken, and were not refused"


def _seal(name: str) -> str:
    return name.removesuffix("log") + "txnindex"


def _batches(content: bytes) -> Iterator[tuple[int, bytes]]:
    position = 0
    while position < len(content):
        size_bytes = read_header(content, position).size_bytes
        yield position, content[position : position + size_bytes]
        position += size_bytes


def _offsets(batches: Sequence[tuple[int, bytes]], which: Callable[[int, bytes], bool]) -> frozenset[int]:
    chosen = (read_header(batch) for position, batch in batches if which(position, batch))
    return frozenset(
        offset for header in chosen for offset in range(header.base_offset, header.last_offset + 1)
    )


def _is_broken(changed: bytes, position: int, batch: bytes) -> bool:
    """Whether a batch can be found nowhere any more, wherever it may lie now."""
    now = changed[position : position + len(batch)]
    is_as_signed = now[LENGTH] == batch[LENGTH] and now[SIGNED] == batch[SIGNED]
    return not is_as_signed and batch[SIGNED] not in changed
