"""Archives of Spark's classes: which one belongs to a session, and that a broken one is never used."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.errors import SetupError
from headrace.streams.class_archive import ARCHIVES_MAX, archive_digest, ensure_archive, find_archive
from headrace.streams.java import Java
from headrace.testing.waiting import eventually

WAIT_S_MAX = 60.0


@pytest.fixture
def java(tmp_path: Path) -> Java:
    home = tmp_path / "java"
    home.mkdir()
    (home / "release").write_text('JAVA_VERSION="17.0.1"')
    return Java(executable=home / "bin" / "java", version=17, home=home)


def write_whole(_work: Path, made: Path) -> None:
    made.write_bytes(b"whole")


def never(_work: Path, _made: Path) -> None:
    pytest.fail("there is one already")


def files_beside(archive: Path) -> list[str]:
    return sorted(path.name for path in archive.parent.iterdir() if path.name != ".lock")


def test_an_archive_belongs_to_one_java_and_one_class_path(tmp_path: Path, java: Java) -> None:
    jar = tmp_path / "a.jar"
    jar.write_bytes(b"jar")
    digest = archive_digest(java, [jar])

    assert digest == archive_digest(java, [jar])
    assert digest != archive_digest(java, [])
    assert digest != archive_digest(replace(java, home=tmp_path / "without release"), [jar])
    (java.home / "release").write_text('JAVA_VERSION="17.0.2"')
    assert digest != archive_digest(java, [jar])


def test_a_jar_that_was_installed_anew_wants_another_archive(tmp_path: Path, java: Java) -> None:
    jar = tmp_path / "a.jar"
    jar.write_bytes(b"jar")
    digest = archive_digest(java, [jar])

    os.utime(jar, (1_000_000, 1_000_000))

    assert digest != archive_digest(java, [jar])


def test_an_archive_is_there_when_it_is_whole(tmp_path: Path) -> None:
    def train(work: Path, made: Path) -> None:
        (work / "checkpoints").mkdir()
        made.write_bytes(b"half")
        assert find_archive(tmp_path, "abc") is None
        made.write_bytes(b"whole")

    archive = ensure_archive(tmp_path, "abc", train)

    assert archive.read_bytes() == b"whole"
    assert find_archive(tmp_path, "abc") == archive
    assert find_archive(tmp_path, "other") is None
    assert files_beside(archive) == [archive.name]


def test_an_archive_is_made_once(tmp_path: Path) -> None:
    def waits() -> None:
        pytest.fail("nobody else is making one")

    archive = ensure_archive(tmp_path, "abc", write_whole, waits)
    assert ensure_archive(tmp_path, "abc", never, waits) == archive


def test_of_those_who_want_an_archive_at_once_one_makes_it(tmp_path: Path) -> None:
    waiting = threading.Event()

    def train(_work: Path, made: Path) -> None:
        assert waiting.wait(WAIT_S_MAX)
        made.write_bytes(b"whole")

    def wait_for_it() -> Path:
        # It says so before it waits: the first one goes on only then.
        return ensure_archive(tmp_path, "abc", never, waiting.set)

    with ThreadPoolExecutor(max_workers=2) as threads:
        # The first one makes it until the second one has come, and holds the lock meanwhile.
        first = threads.submit(ensure_archive, tmp_path, "abc", train)
        eventually(lambda: list((tmp_path / "classes").glob(".make-*")), "work in progress")
        second = threads.submit(wait_for_it)
        assert first.result(WAIT_S_MAX) == second.result(WAIT_S_MAX)


def test_what_a_kill_has_left_goes_when_another_archive_is_made(tmp_path: Path) -> None:
    left = tmp_path / "classes" / ".make-killed" / "checkpoints"
    left.mkdir(parents=True)
    (left / "metadata").touch()

    archive = ensure_archive(tmp_path, "abc", write_whole)

    assert files_beside(archive) == [archive.name]


def test_an_archive_that_was_cut_off_is_not_used_and_made_anew(tmp_path: Path) -> None:
    cut_off = ensure_archive(tmp_path, "abc", write_whole)
    cut_off.write_bytes(b"who")
    assert find_archive(tmp_path, "abc") is None

    archive = ensure_archive(tmp_path, "abc", lambda _work, made: made.touch())

    assert find_archive(tmp_path, "abc") == archive
    assert files_beside(archive) == [archive.name]


def test_an_archive_that_could_not_be_made_leaves_nothing(tmp_path: Path) -> None:
    old = ensure_archive(tmp_path, "old", write_whole)

    def break_off(_work: Path, made: Path) -> None:
        made.write_bytes(b"half")
        raise SetupError("broken off")

    with pytest.raises(SetupError, match="broken off"):
        ensure_archive(tmp_path, "abc", break_off)
    with pytest.raises(SetupError, match="this Java makes no archives"):
        ensure_archive(tmp_path, "abc", lambda _work, _made: None)

    assert find_archive(tmp_path, "abc") is None
    assert files_beside(old) == [old.name]


def test_a_cache_that_can_not_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "cache").touch()

    with pytest.raises(SetupError, match=r"cache/classes can't be written .*Pipelines run without"):
        ensure_archive(tmp_path / "cache", "abc", never)


def test_the_newest_archives_are_kept(tmp_path: Path) -> None:
    for age in range(1, ARCHIVES_MAX + 2):
        older = ensure_archive(tmp_path, f"age{age}", write_whole)
        os.utime(older, (1_000_000 - age, 1_000_000 - age))

    ensure_archive(tmp_path, "new", write_whole)

    names = ["new", *(f"age{age}" for age in range(1, ARCHIVES_MAX + 2))]
    assert [name for name in names if find_archive(tmp_path, name)] == names[:ARCHIVES_MAX]
