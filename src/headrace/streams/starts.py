"""From where queries read that have no checkpoint yet, settled once and for all of them.

    DATA/checkpoints/<query>/starts.json    {"orders": {"0": 17, "1": -2}}: by topic and partition

A start such as `latest` means another offset a moment later, and the records that can't be decoded are read
by another query than those that can: a record that falls between the two would be in neither. So the broker
is asked once for all queries that start together, and the answer is noted down before any of them starts: the
queries for dead letters first, so that what a crash leaves can't make them begin later than the pipelines.
What is noted down is gone together with the checkpoint, and then asked anew.

-2 is a partition's first record, whatever that is when it is read: Spark's own notation. `earliest` is never
asked for, because retention may move it before it is read.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from headrace.config import StreamsConfig
from headrace.errors import ConfigError
from headrace.streams.checkpoint import checkpoint_path
from headrace.streams.topic import Topic

FIRST: Final = -2
"""Spark's notation for the first record that there is."""

Offsets = Mapping[int, int]
"""By partition."""
Starts = Mapping[str, Offsets]
"""By topic."""
Ask = Callable[[Sequence[Topic]], Starts]
"""Ask the cluster what the starts of topics, described one by one, mean in offsets."""


def settle_starts(
    config: StreamsConfig, queries: Mapping[str, Sequence[Topic]], ask: Ask
) -> dict[str, Starts]:
    """The starts of each query that reads these topics, where they are no plain `earliest`.

    `queries` must have those for dead letters first.
    """
    topics = {query: [one for topic in read for one in topic.each()] for query, read in queries.items()}
    kept = {query: _read(_path(config, query)) for query in queries}
    missing = {
        topic.name: topic
        for query, read in topics.items()
        for topic in read
        if topic.start != "earliest" and topic.name not in kept[query]
    }
    asked = ask(list(missing.values())) if missing else {}
    settled: dict[str, Starts] = {}
    for query, read in topics.items():
        new = {topic.name: asked[topic.name] for topic in read if topic.name in missing}
        settled[query] = {**new, **kept[query]}
        if new.keys() - kept[query].keys():
            _write(_path(config, query), settled[query])
    return settled


def starting_offsets(topic: Topic, starts: Starts) -> str:
    """Spark's option `startingOffsets` for the topic."""
    if topic.start == "earliest" or not starts:
        return "earliest"
    return json.dumps({name: {str(p): offset for p, offset in starts[name].items()} for name in topic.names})


def _path(config: StreamsConfig, query: str) -> Path:
    return checkpoint_path(config, query) / "starts.json"


def _read(path: Path) -> dict[str, dict[int, int]]:
    try:
        content = json.loads(path.read_text())
        return {
            str(name): {int(partition): int(offset) for partition, offset in offsets.items()}
            for name, offsets in content.items()
        }
    except FileNotFoundError:
        return {}
    except (ValueError, AttributeError, TypeError) as error:
        raise ConfigError(
            f"{path} does not say where its query started ({type(error).__name__}: {error}): remove it, and "
            "the broker is asked anew; a query that has finished a batch no longer needs it"
        ) from error


def _write(path: Path, starts: Starts) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    new = path.with_name(f".{path.name}~")
    with new.open("w") as file:
        json.dump({name: dict(offsets) for name, offsets in starts.items()}, file)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
