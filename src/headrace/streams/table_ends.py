"""Where the topics of tables ended when a pipeline was first started, and how far a micro-batch has read.

    DATA/checkpoints/<query>/tables.json    {"products": {"0": 17}}: by topic and partition

A table that events are joined with must be whole before the first of them is. The broker is asked once where
its topics end, and the answer is noted down before the query starts, so that a restart waits for the same.
How far a micro-batch reads is in Spark's own log of offsets, which is written before it runs and is the same
when it runs again. Whether the last records gave rows does not matter: they may be tombstones.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from headrace.streams.kept import read_kept, write_kept
from headrace.streams.progress_log import Offsets, format_offsets, parse_batch, parse_offsets

AskEnds = Callable[[Collection[str]], Offsets]
"""Ask the cluster where topics end."""
_NOTE = "tables.json"


def settle_table_ends(checkpoint: Path, topics: Collection[str], ask: AskEnds) -> dict[str, int]:
    """By source, where the topics of a table ended when that was first asked."""
    known = _kept(checkpoint)
    missing = sorted(set(topics) - {topic for topic, _ in known})
    if missing:
        known = {**known, **ask(missing)}
        write_kept(checkpoint / _NOTE, json.loads(format_offsets(known)))
    return _by_source({place: end for place, end in known.items() if place[0] in topics})


def read_table_ends(checkpoint: Path, topics: Collection[str]) -> dict[str, int]:
    """What was noted down; nothing where that is not there."""
    return _by_source({place: end for place, end in _kept(checkpoint).items() if place[0] in topics})


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchEnds:
    """Up to where micro-batches read. Travels to the executors, which see the checkpoint's directory, too."""

    checkpoint: str

    def __call__(self, batch_id: int) -> Mapping[str, int]:
        """By source, such as `products-0`."""
        return _read(self.checkpoint, batch_id)


@lru_cache(maxsize=4)
def _read(checkpoint: str, batch_id: int) -> Mapping[str, int]:
    path = Path(checkpoint) / "offsets" / str(batch_id)
    batch = parse_batch(path.read_text(), batch_id)
    ends: dict[str, int] = {}
    for source in batch.ends:
        for name, end in _by_source(source).items():
            # A topic can be read twice; what counts is what all have read.
            ends[name] = min(end, ends.get(name, end))
    return ends


def _kept(checkpoint: Path) -> Offsets:
    kept = read_kept(
        checkpoint / _NOTE,
        lambda content: parse_offsets(json.dumps(content)),
        problem="does not say where the topics of tables ended",
        advice="remove it, and the broker is asked anew",
    )
    return kept or {}


def _by_source(offsets: Offsets) -> dict[str, int]:
    return {f"{topic}-{partition}": offset for (topic, partition), offset in offsets.items()}
