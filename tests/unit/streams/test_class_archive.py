"""Archives of Spark's classes: which one belongs to a session, and that a broken one is never used."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.errors import SetupError
from headrace.streams.class_archive import ARCHIVES_MAX, archive_digest, find_archive, make_archive
from headrace.streams.java import Java

BOOTSTRAP = "127.0.0.1:9092"


@pytest.fixture
def java(tmp_path: Path) -> Java:
    home = tmp_path / "java"
    home.mkdir()
    (home / "release").write_text('JAVA_VERSION="17.0.1"')
    return Java(executable=home / "bin" / "java", version=17, home=home)


def write_whole(_bootstrap: str, _work: Path, made: Path) -> None:
    made.write_bytes(b"whole")


def test_an_archive_belongs_to_one_java_and_one_class_path(tmp_path: Path, java: Java) -> None:
    jars = [Path("/jars/a.jar")]
    digest = archive_digest(java, jars)

    assert digest == archive_digest(java, jars)
    assert digest != archive_digest(java, [])
    assert digest != archive_digest(replace(java, home=tmp_path / "without release"), jars)
    (java.home / "release").write_text('JAVA_VERSION="17.0.2"')
    assert digest != archive_digest(java, jars)


def test_an_archive_is_there_when_it_is_whole(tmp_path: Path) -> None:
    def train(bootstrap: str, work: Path, made: Path) -> None:
        assert bootstrap == BOOTSTRAP
        (work / "checkpoints").mkdir()
        made.write_bytes(b"half")
        assert find_archive(tmp_path, "abc") is None
        made.write_bytes(b"whole")

    archive = make_archive(tmp_path, "abc", BOOTSTRAP, train=train)

    assert archive.read_bytes() == b"whole"
    assert find_archive(tmp_path, "abc") == archive
    assert find_archive(tmp_path, "other") is None
    assert list(archive.parent.iterdir()) == [archive]


def test_an_archive_that_was_cut_off_is_not_used_and_goes_when_another_is_made(tmp_path: Path) -> None:
    cut_off = make_archive(tmp_path, "abc", BOOTSTRAP, train=write_whole)
    cut_off.write_bytes(b"who")
    assert find_archive(tmp_path, "abc") is None

    archive = make_archive(tmp_path, "abc", BOOTSTRAP, train=lambda _bootstrap, _work, made: made.touch())

    assert find_archive(tmp_path, "abc") == archive
    assert list(archive.parent.iterdir()) == [archive]


def test_an_archive_that_could_not_be_made_leaves_the_old_one_and_nothing_else(tmp_path: Path) -> None:
    old = make_archive(tmp_path, "abc", BOOTSTRAP, train=write_whole)

    def break_off(_bootstrap: str, _work: Path, made: Path) -> None:
        made.write_bytes(b"half")
        raise SetupError("broken off")

    with pytest.raises(SetupError, match="broken off"):
        make_archive(tmp_path, "abc", BOOTSTRAP, train=break_off)
    with pytest.raises(SetupError, match="this Java makes no archives"):
        make_archive(tmp_path, "abc", BOOTSTRAP, train=lambda _bootstrap, _work, _made: None)

    assert find_archive(tmp_path, "abc") == old
    assert list(old.parent.iterdir()) == [old]


def test_the_newest_archives_are_kept(tmp_path: Path) -> None:
    for age in range(1, ARCHIVES_MAX + 2):
        older = make_archive(tmp_path, f"age{age}", BOOTSTRAP, train=write_whole)
        os.utime(older, (1_000_000 - age, 1_000_000 - age))

    make_archive(tmp_path, "new", BOOTSTRAP, train=write_whole)

    names = ["new", *(f"age{age}" for age in range(1, ARCHIVES_MAX + 2))]
    assert [name for name in names if find_archive(tmp_path, name)] == names[:ARCHIVES_MAX]
