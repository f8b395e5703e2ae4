"""Which generation of an index counts."""

from __future__ import annotations

from pathlib import Path

from headrace.search import layout


def made(index: Path, name: str) -> Path:
    generation = index / name
    generation.mkdir(parents=True)
    (generation / layout.COLUMNS).write_text("{}")
    return generation


def test_the_generation_that_is_pointed_to_counts(tmp_path: Path) -> None:
    assert layout.current(tmp_path) is layout.place(tmp_path) is None
    first, second = made(tmp_path, layout.FIRST), made(tmp_path, layout.generation_name("2"))
    layout.point(tmp_path, first)
    assert layout.current(tmp_path) == layout.place(tmp_path) == first
    assert layout.others(tmp_path) == [second]
    layout.point(tmp_path, second)
    assert layout.place(tmp_path) == second
    assert layout.others(tmp_path) == [first]
    assert not list(tmp_path.glob("*~"))


def test_a_generation_can_be_meant_by_itself_and_only_within_an_index(tmp_path: Path) -> None:
    generation = made(tmp_path, "g-x")
    assert not layout.is_generation(generation)
    layout.point(tmp_path, made(tmp_path, layout.FIRST))
    assert layout.place(generation) == generation


def test_a_generation_that_is_not_whole_is_none(tmp_path: Path) -> None:
    (tmp_path / layout.FIRST).mkdir()
    layout.point(tmp_path, tmp_path / layout.FIRST)
    assert layout.place(tmp_path) is None
    assert layout.place(tmp_path / layout.FIRST) is None
