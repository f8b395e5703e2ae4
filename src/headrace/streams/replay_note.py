"""What is kept of a replay that is not finished, so that a second call goes on with it.

DATA/replays/<query>.json    {"id": "...", "code": "...", "stage": "...", "span": ..., ...}

It is written before anything is changed, and removed when all is done. `id` is what the ledger knows the
replay's batches by: those that were written are not written again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, get_args

from headrace.config import StreamsConfig
from headrace.streams.kept import read_kept, write_kept
from headrace.streams.progress_log import Offsets, format_offsets, parse_offsets
from headrace.streams.spans import Span

Stage = Literal["begun", "shut out", "replaying", "replayed"]
"""`begun`: the checkpoint is as it was. `shut out`: an earlier run can write the topic no more, or the table
to be swapped in is made; the checkpoint is about to be put aside. `replaying`: it is. `replayed`: all is
computed, and the old results may be there."""
_STAGES: Final = get_args(Stage)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayNote:
    """A replay that was begun."""

    id: str
    code: str | None
    """The fingerprint of the code that it was begun with."""
    stage: Stage
    span: Span | None = None
    """What is replayed in batch; None where a stream does it, which has a checkpoint."""
    bounds: tuple[str, str] | None = None
    """Between what the span was asked for, as `Bound` is told; None where that is not known."""
    piece_count: int = 0
    """Into how many pieces the span is cut; 0 as long as that is not decided."""
    pieces_done: int = 0
    """How many of them are written; perhaps one more is."""
    row_count: int = 0
    """How many rows these had."""
    swap: bool = False
    """Whether the results take the place of others."""
    delete_before: Offsets | None = None
    """Where the new results begin: older ones are deleted at the end."""


def note_path(config: StreamsConfig, query: str) -> Path:
    """Where the note is kept."""
    return config.data_dir.absolute() / "replays" / f"{query}.json"


def read_note(config: StreamsConfig, query: str) -> ReplayNote | None:
    """The note of an unfinished replay; None if there is none."""
    return read_kept(
        note_path(config, query),
        from_json,
        problem="does not tell of a replay",
        advice="remove it, and delete what the replay has written so far, to begin anew",
    )


def write_note(config: StreamsConfig, query: str, note: ReplayNote) -> None:
    """Keep it, whole or not at all."""
    write_kept(note_path(config, query), to_json(note))


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
        "bounds": None if note.bounds is None else list(note.bounds),
        "piece_count": note.piece_count,
        "pieces_done": note.pieces_done,
        "row_count": note.row_count,
        "swap": note.swap,
        "delete_before": None if note.delete_before is None else format_offsets(note.delete_before),
    }


def from_json(kept: Mapping[str, Any]) -> ReplayNote:
    """What `to_json` gave."""
    span, delete_before, stage = kept["span"], kept["delete_before"], kept["stage"]
    bounds = kept.get("bounds")
    if stage not in _STAGES:
        raise ValueError(f"its stage is {stage!r}")
    return ReplayNote(
        id=str(kept["id"]),
        code=kept["code"],
        stage=stage,
        span=None if span is None else Span(starts=parse_offsets(span[0]), ends=parse_offsets(span[1])),
        bounds=None if bounds is None else (str(bounds[0]), str(bounds[1])),
        piece_count=int(kept["piece_count"]),
        pieces_done=int(kept["pieces_done"]),
        row_count=int(kept["row_count"]),
        swap=bool(kept["swap"]),
        delete_before=None if delete_before is None else parse_offsets(delete_before),
    )
