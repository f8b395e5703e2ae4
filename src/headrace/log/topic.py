"""A topic, and the manifest that makes it one: `topics/<name>.json`, replaced as a whole when it changes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from headrace.errors import HeadraceError, StorageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.log.partition import PartitionLog

_FORMAT: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What is written down about a topic."""

    name: str
    topic_id: UUID
    partition_count: int
    config: Mapping[str, str]

    @property
    def directory_names(self) -> list[str]:
        """Where the partitions lie, below the store's `log` directory."""
        return [f"{self.name}-{number}" for number in range(self.partition_count)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic whose partitions are open."""

    name: str
    topic_id: UUID
    partitions: tuple[PartitionLog, ...]
    config: Mapping[str, str]


def encode_manifest(manifest: Manifest) -> bytes:
    """The manifest as JSON."""
    content = {
        "format": _FORMAT,
        "name": manifest.name,
        "topic_id": str(manifest.topic_id),
        "partition_count": manifest.partition_count,
        "config": dict(manifest.config),
    }
    return json.dumps(content, indent=2).encode() + b"\n"


def decode_manifest(content: bytes, path: object) -> Manifest:
    """Read a manifest; the path is for the error alone."""
    try:
        fields: dict[str, Any] = json.loads(content)
        if fields["format"] != _FORMAT:
            raise StorageError(f"{path} has format {fields['format']}; this version reads format {_FORMAT}")
        return Manifest(
            name=str(fields["name"]),
            topic_id=UUID(fields["topic_id"]),
            partition_count=int(fields["partition_count"]),
            config={str(key): str(value) for key, value in fields["config"].items()},
        )
    except HeadraceError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StorageError(f"{path} is not a topic's manifest ({error}); restore it from a copy") from error
