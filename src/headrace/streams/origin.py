"""Where a checkpoint's offsets come from: an offset means nothing in another cluster or another topic.

DATA/checkpoints/<query>.json    {"cluster_id": "...", "topic_ids": {"orders": "..."}}

It is written when a query starts, beside its checkpoint, and counts for as long as the checkpoint is there.
A query that went on with the offsets of another cluster, or of a topic that was deleted and created anew,
would pass over the records below them in silence; so it is refused before Spark starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headrace.config import StreamsConfig
from headrace.errors import ConfigError
from headrace.streams.checkpoint import checkpoint_path
from headrace.streams.kept import read_kept, write_kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """A cluster, and topics of it, as they identify themselves."""

    cluster_id: str | None
    """None where the cluster does not say."""
    topic_ids: Mapping[str, str]
    """By name; topics of clusters that are too old to have ids are left out."""

    def of(self, topics: set[str]) -> Origin:
        """The same for some of the topics."""
        known = {name: topic_id for name, topic_id in self.topic_ids.items() if name in topics}
        return Origin(cluster_id=self.cluster_id, topic_ids=known)


def difference(kept: Origin, found: Origin) -> str | None:
    """What has changed so that kept offsets mean nothing any more; None if they hold."""
    if kept.cluster_id and found.cluster_id and kept.cluster_id != found.cluster_id:
        return f"the cluster {kept.cluster_id}, and this is {found.cluster_id}"
    for name, topic_id in kept.topic_ids.items():
        if found.topic_ids.get(name, topic_id) != topic_id:
            return f"a topic {name} that was deleted since, and created anew"
    return None


def keep_origin(config: StreamsConfig, query: str, found: Origin) -> None:
    """Refuse to go on from a checkpoint of another origin; else note down the origin of this one."""
    checkpoint = checkpoint_path(config, query)
    changed = kept_difference(config, query, found)
    if changed is not None:
        raise ConfigError(
            f"{query} can't go on from its checkpoint, whose offsets are those of {changed}: run it with "
            f"another --data, or remove {checkpoint} to start afresh"
        )
    _write(checkpoint.with_name(f"{query}.json"), found)


def kept_difference(config: StreamsConfig, query: str, found: Origin) -> str | None:
    """What has changed so that the checkpoint's offsets mean nothing any more; None if they hold."""
    checkpoint = checkpoint_path(config, query)
    path = checkpoint.with_name(f"{query}.json")
    kept = _read(path) if checkpoint.exists() else None
    return None if kept is None else difference(kept, found)


def _read(path: Path) -> Origin | None:
    return read_kept(
        path,
        lambda kept: Origin(cluster_id=kept["cluster_id"], topic_ids=dict(kept["topic_ids"])),
        problem="does not say where its checkpoint comes from",
        advice="remove the file if the cluster and its topics are still the same",
    )


def _write(path: Path, origin: Origin) -> None:
    write_kept(path, {"cluster_id": origin.cluster_id, "topic_ids": dict(origin.topic_ids)})
