"""What is kept of a replay that is not finished."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import pytest

from headrace.config import StreamsConfig
from headrace.errors import ConfigError, PipelineError
from headrace.streams.checkpoint import checkpoint_path
from headrace.streams.go_live import refuse_unfinished
from headrace.streams.replay_note import (
    ReplayNote,
    from_json,
    note_path,
    read_note,
    remove_note,
    to_json,
    write_note,
)
from headrace.streams.spans import Span, pieces_of


@pytest.fixture
def config(tmp_path: Path) -> StreamsConfig:
    return StreamsConfig(data_dir=tmp_path)


SPAN = Span(starts={("orders", 0): 3}, ends={("orders", 0): 9})


@pytest.mark.parametrize(
    "note",
    [
        ReplayNote(id="a", code="c", stage="begun"),
        ReplayNote(
            id="a", code=None, stage="replaying", span=SPAN, bounds=("7d", ""), piece_count=3, pieces_done=1
        ),
        ReplayNote(id="a", code="c", stage="replaying", delete_before={("out", 1): 7}, swap=True),
        ReplayNote(id="a", code="c", stage="replayed", row_count=12),
    ],
)
def test_a_note_is_read_as_it_was_written_and_gone_when_removed(
    config: StreamsConfig, note: ReplayNote
) -> None:
    write_note(config, "copies", note)

    assert read_note(config, "copies") == note
    remove_note(config, "copies")
    assert read_note(config, "copies") is None


def test_a_pipeline_whose_replay_was_interrupted_is_not_run(config: StreamsConfig) -> None:
    refuse_unfinished(config, "copies")
    write_note(config, "copies", ReplayNote(id="a", code="c", stage="replaying"))

    with pytest.raises(PipelineError, match="a replay of copies was interrupted: finish it") as refused:
        refuse_unfinished(config, "copies")
    way_out = f"delete {checkpoint_path(config, 'copies')} and {note_path(config, 'copies')} to replay anew"
    assert str(refused.value).endswith(way_out)


def test_a_pipeline_whose_replay_has_changed_nothing_can_be_run_once_the_note_is_deleted(
    config: StreamsConfig,
) -> None:
    write_note(config, "copies", ReplayNote(id="a", code="c", stage="begun"))

    with pytest.raises(PipelineError) as refused:
        refuse_unfinished(config, "copies")
    assert str(refused.value).endswith(f"delete {note_path(config, 'copies')} to run the pipeline as before")


def test_a_note_of_before_bounds_were_kept_is_read(config: StreamsConfig) -> None:
    note = ReplayNote(id="a", code="c", stage="replaying", span=SPAN)
    kept = to_json(note)
    del kept["bounds"]

    assert from_json(kept) == note


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        '{"id": "a"}',
        '{"id": "a", "code": null, "stage": "?", "span": null, "delete_before": null}',
    ],
)
def test_a_damaged_note_is_told_with_the_way_out(config: StreamsConfig, content: str) -> None:
    note_path(config, "copies").parent.mkdir(parents=True)
    note_path(config, "copies").write_text(content)

    with pytest.raises(ConfigError, match="does not tell of a replay"):
        read_note(config, "copies")


@pytest.mark.parametrize("seed", range(200))
def test_pieces_of_a_span_follow_each_other_and_are_all_of_it(seed: int) -> None:
    chance = random.Random(seed)
    starts = {("orders", number): chance.randint(0, 50) for number in range(chance.randint(0, 5))}
    ends = {place: start + chance.randint(0, 200) for place, start in starts.items()}
    span = Span(starts=starts, ends=ends)

    pieces = pieces_of(span, chance.randint(1, 30))

    assert pieces[0].starts == starts
    assert pieces[-1].ends == ends
    assert all(one.ends == following.starts for one, following in pairwise(pieces))
    assert sum(piece.offset_count for piece in pieces) == span.offset_count


def test_pieces_are_of_one_size_but_for_rounding() -> None:
    span = Span(starts={("a", 0): 0, ("a", 1): 0}, ends={("a", 0): 1000, ("a", 1): 500})

    assert [piece.offset_count for piece in pieces_of(span, 3)] == [499, 500, 501]
