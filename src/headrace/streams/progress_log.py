"""What a checkpoint says was processed: Spark's own files, read without Spark. No I/O but reading.

CHECKPOINT/sources/<i>/0     where source i began, written once:  a byte 0, "v1\\n", {"orders": {"0": 0}}
CHECKPOINT/offsets/<batch>   "v1", a line of settings with the watermark, then a line for each source: where
                             the batch ends, or "-" if the source had none yet
CHECKPOINT/commits/<batch>   there once the batch is done

A batch reads from where the one before ended. Spark removes old batches, but for the last hundred or so.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.errors import ConfigError

Place = tuple[str, int]
"""A topic and a partition."""
Offsets = Mapping[Place, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A batch that was begun."""

    number: int
    ends: tuple[Offsets, ...]
    """Where it ends, for each source."""
    watermark_ms: int
    shuffle_partition_count: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressLog:
    """What a checkpoint says was processed."""

    starts: tuple[Offsets, ...]
    """Where each source began. A partition that came later began at its first record."""
    batches: tuple[Batch, ...]
    """Those that are still there, in their order, committed or not."""
    committed: int | None
    """The last batch that is done."""

    @property
    def last_committed(self) -> Batch | None:
        """The last batch that is done."""
        found = [batch for batch in self.batches if batch.number == self.committed]
        return found[0] if found else None

    @property
    def next_batch(self) -> int:
        """The first batch that is not done."""
        return 0 if self.committed is None else self.committed + 1

    def start_of(self, batch: Batch) -> tuple[Offsets, ...] | None:
        """Where the batch begins, for each source; None if that is no longer known."""
        if batch.number == 0:
            return self.starts
        before = [each for each in self.batches if each.number == batch.number - 1]
        return before[0].ends if before else None


def has_batch(checkpoint: Path) -> bool:
    """Whether the checkpoint holds anything to go on from."""
    return bool(_numbers(checkpoint / "offsets"))


def read_progress_log(checkpoint: Path) -> ProgressLog:
    """Read what was processed."""
    try:
        batches = [_read_batch(checkpoint / "offsets" / str(n), n) for n in _numbers(checkpoint / "offsets")]
        starts = _read_starts(checkpoint / "sources")
        commits = _numbers(checkpoint / "commits")
    except (OSError, ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        raise ConfigError(
            f"{checkpoint} is not a checkpoint that can be read ({type(error).__name__}: {error}): restore a "
            "copy, or remove it to start anew"
        ) from error
    return ProgressLog(
        starts=tuple(starts), batches=tuple(batches), committed=commits[-1] if commits else None
    )


def added_up_end(checkpoint: Path, number: int) -> int | None:
    """Where a batch ends, all partitions added up; None where its file does not tell."""
    try:
        batch = _read_batch(checkpoint / "offsets" / str(number), number)
    except (OSError, ValueError, TypeError, KeyError, IndexError, AttributeError):
        return None
    return sum(sum(ends.values()) for ends in batch.ends)


def parse_offsets(text: str) -> Offsets:
    """Spark's own writing of offsets: {"orders": {"0": 17}}."""
    return {
        (topic, int(partition)): int(offset)
        for topic, partitions in json.loads(text).items()
        for partition, offset in partitions.items()
    }


def format_offsets(offsets: Offsets) -> str:
    """As Spark writes and reads offsets."""
    topics: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        topics.setdefault(topic, {})[str(partition)] = offset
    return json.dumps(topics)


def parse_batch(text: str, number: int) -> Batch:
    """The content of a file of offsets."""
    version, settings, *ends = text.splitlines()
    if version.strip() not in {"v1", "v2"}:
        raise ValueError(f"its version is {version!r}")
    told: Mapping[str, Any] = json.loads(settings)
    shuffle = told.get("conf", {}).get("spark.sql.shuffle.partitions")
    return Batch(
        number=number,
        ends=tuple({} if end.strip() == "-" else parse_offsets(end) for end in ends if end.strip()),
        watermark_ms=int(told.get("batchWatermarkMs", 0)),
        shuffle_partition_count=None if shuffle is None else int(shuffle),
    )


def _numbers(directory: Path) -> list[int]:
    return sorted(int(path.name) for path in directory.glob("[0-9]*") if path.name.isdecimal())


def _read_batch(path: Path, number: int) -> Batch:
    return parse_batch(path.read_text(), number)


def _read_starts(directory: Path) -> list[Offsets]:
    sources = _numbers(directory)
    return [parse_offsets(_offsets_line((directory / str(source) / "0").read_text())) for source in sources]


def _offsets_line(text: str) -> str:
    return text.lstrip("\0").partition("\n")[2]
