"""What is kept of a replay that is not finished, so that a second call goes on with it.

DATA/replays/<query>.json    {"id": "...", "code": "...", "stage": "...", "span": ..., ...}

It is written before anything else, and removed when all is done. `id` is what the ledger knows the replay's
batches by: those that were written are not written again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from headrace.config import StreamsConfig
from headrace.errors import ConfigError
from headrace.streams.progress_log import Offsets, format_offsets, parse_offsets
from headrace.streams.spans import Span

Stage = Literal["begun", "replaying"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayNote:
    """A replay that was begun."""

    id: str
    code: str | None
    """The fingerprint of the code that it was begun with."""
    stage: Stage
    span: Span | None = None
    """What is replayed in batch; None where a stream does it, which has a checkpoint."""
    piece_count: int = 0
    """Into how many pieces the span is cut; 0 as long as that is not decided."""
    pieces_done: int = 0
    """How many of them are written; perhaps one more is."""
    delete_before: Offsets | None = None
    """Where the new results begin: older ones are deleted at the end."""


def note_path(config: StreamsConfig, query: str) -> Path:
    """Where the note is kept."""
    return config.data_dir.absolute() / "replays" / f"{query}.json"


def read_note(config: StreamsConfig, query: str) -> ReplayNote | None:
    """The note of an unfinished replay; None if there is none."""
    path = note_path(config, query)
    try:
        return from_json(json.loads(path.read_text()))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ConfigError(
            f"{path} does not tell of a replay ({type(error).__name__}: {error}): remove it, and delete what "
            "the replay has written so far, to begin anew"
        ) from error


def write_note(config: StreamsConfig, query: str, note: ReplayNote) -> None:
    """Keep it, whole or not at all."""
    path = note_path(config, query)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    new = path.with_name(f"{path.name}~")
    with new.open("w") as file:
        json.dump(to_json(note), file)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def remove_note(config: StreamsConfig, query: str) -> None:
    """The replay is done."""
    note_path(config, query).unlink(missing_ok=True)


def to_json(note: ReplayNote) -> dict[str, Any]:
    """As it is kept."""
    span = note.span
    return {
        "id": note.id,
        "code": note.code,
        "stage": note.stage,
        "span": None if span is None else [format_offsets(span.starts), format_offsets(span.ends)],
        "piece_count": note.piece_count,
        "pieces_done": note.pieces_done,
        "delete_before": None if note.delete_before is None else format_offsets(note.delete_before),
    }


def from_json(kept: Mapping[str, Any]) -> ReplayNote:
    """What `to_json` gave."""
    span, delete_before, stage = kept["span"], kept["delete_before"], kept["stage"]
    if stage not in {"begun", "replaying"}:
        raise ValueError(f"its stage is {stage!r}")
    return ReplayNote(
        id=str(kept["id"]),
        code=kept["code"],
        stage=stage,
        span=None if span is None else Span(starts=parse_offsets(span[0]), ends=parse_offsets(span[1])),
        piece_count=int(kept["piece_count"]),
        pieces_done=int(kept["pieces_done"]),
        delete_before=None if delete_before is None else parse_offsets(delete_before),
    )
