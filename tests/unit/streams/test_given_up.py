"""What is noted of batches that a change to real-time mode gives up."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import ConfigError
from headrace.streams.given_up import clear_given_up_state, digest_of, given_up_digests, note_given_up


def checkpoint(path: Path, *, offsets: dict[int, str], commits: tuple[int, ...] = ()) -> Path:
    for log in ("offsets", "commits"):
        (path / log).mkdir(parents=True, exist_ok=True)
    for batch_id, content in offsets.items():
        (path / "offsets" / str(batch_id)).write_text(content)
    for batch_id in commits:
        (path / "commits" / str(batch_id)).write_text("v1")
    return path


@pytest.mark.parametrize("commits", [(), (8, 9)])
def test_a_batch_that_was_begun_and_not_committed_is_given_up(
    tmp_path: Path, commits: tuple[int, ...]
) -> None:
    begun = max(commits, default=-1) + 1
    there = checkpoint(tmp_path, offsets={begun: "input"}, commits=commits)
    digest = digest_of(there, begun)

    note_given_up(there)

    assert given_up_digests(there, begun) == {digest}
    assert given_up_digests(there, begun + 1) == frozenset()


def test_a_batch_that_is_given_up_again_and_again_has_all_its_inputs(tmp_path: Path) -> None:
    digests = set()
    for content in ("one", "two", "three"):
        there = checkpoint(tmp_path, offsets={0: content})
        note_given_up(there)
        digests.add(digest_of(there, 0))

    assert given_up_digests(there, 0) == digests
    assert len(digests) == 3


def test_a_later_batch_takes_the_place_of_an_earlier_one(tmp_path: Path) -> None:
    note_given_up(checkpoint(tmp_path, offsets={0: "input"}))
    there = checkpoint(tmp_path, offsets={1: "next"}, commits=(0,))

    note_given_up(there)

    assert given_up_digests(there, 0) == frozenset()
    assert given_up_digests(there, 1) == {digest_of(there, 1)}


@pytest.mark.parametrize("commits", [(), (0,)])
def test_where_all_is_committed_nothing_is_given_up(tmp_path: Path, commits: tuple[int, ...]) -> None:
    there = checkpoint(tmp_path, offsets=dict.fromkeys(commits, "input"), commits=commits)

    note_given_up(there)

    assert given_up_digests(there, 0) == frozenset()


def test_the_state_of_a_first_batch_that_was_given_up_is_removed(tmp_path: Path) -> None:
    there = checkpoint(tmp_path, offsets={0: "input"})
    (there / "state" / "0").mkdir(parents=True)
    note_given_up(there)

    clear_given_up_state(there)
    assert (there / "state").exists(), "it was not given up yet"

    (there / "offsets" / "0").unlink()
    clear_given_up_state(there)
    assert not (there / "state").exists()


def test_state_that_nobody_gave_up_stays(tmp_path: Path) -> None:
    there = checkpoint(tmp_path, offsets={})
    (there / "state" / "0").mkdir(parents=True)

    clear_given_up_state(there)

    assert (there / "state").exists()


def test_a_note_that_cannot_be_read_is_an_error_that_says_which(tmp_path: Path) -> None:
    (tmp_path / "given-up.json").write_text("[]")
    with pytest.raises(ConfigError, match=r"given-up\.json does not say which batch was given up"):
        given_up_digests(tmp_path, 0)
