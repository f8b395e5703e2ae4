"""The cache of connector jars: complete and verified, or not there at all."""

from __future__ import annotations

import hashlib
import re
import threading
from pathlib import Path

import pytest

from headrace.errors import SetupError
from headrace.streams.jars import CHECKPOINT_JAR, JARS, Jar, Show, find_checkpoint_jar, resolve_jars


def jar(artifact: str) -> Jar:
    return Jar(
        group="org.example",
        artifact=artifact,
        version="1.0",
        sha256=hashlib.sha256(artifact.encode()).hexdigest(),
    )


TWO = (jar("first"), jar("second"))


class Repository:
    """Stands in for Maven Central. `content` may differ from what is expected."""

    def __init__(self, content: dict[str, bytes] | None = None) -> None:
        self.content = content or {}
        self.fetch_count = 0

    def fetch(self, jars: tuple[Jar, ...], directory: Path, _show: Show) -> None:
        self.fetch_count += 1
        (directory / "cache").mkdir()
        for one in jars:
            (directory / one.filename).write_bytes(self.content.get(one.artifact, one.artifact.encode()))


def resolve(cache: Path, repository: Repository) -> list[Path]:
    return resolve_jars(cache, None, jars=TWO, show=lambda _: None, fetch=repository.fetch)


def test_the_pinned_set_is_the_one_that_is_known_to_work() -> None:
    assert [one.coordinate for one in JARS] == [
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
        "org.apache.kafka:kafka-clients:3.9.2",
        "org.apache.commons:commons-pool2:2.13.1",
    ]
    assert CHECKPOINT_JAR.coordinate == "com.globalmentor:hadoop-bare-naked-local-fs:0.1.0"
    assert all(re.fullmatch(r"[0-9a-f]{64}", one.sha256) for one in (*JARS, CHECKPOINT_JAR))


def test_the_jar_for_checkpoints_is_used_where_it_is_and_never_asked_for(tmp_path: Path) -> None:
    one = jar("checkpoint")
    assert find_checkpoint_jar(tmp_path, None, jar=one) is None

    (fetched,) = resolve_jars(tmp_path, None, jars=(one,), show=lambda _: None, fetch=Repository().fetch)
    assert find_checkpoint_jar(tmp_path, None, jar=one) == fetched
    assert find_checkpoint_jar(tmp_path, tmp_path / "own", jar=one) is None
    fetched.write_bytes(b"damaged")
    assert find_checkpoint_jar(tmp_path, None, jar=one) is None


def test_jars_are_fetched_once(tmp_path: Path) -> None:
    repository = Repository()

    first = resolve(tmp_path, repository)
    second = resolve(tmp_path, repository)

    assert first == second
    assert [path.read_bytes() for path in first] == [b"first", b"second"]
    assert repository.fetch_count == 1


def test_nothing_but_the_jars_is_left_in_the_cache(tmp_path: Path) -> None:
    home = resolve(tmp_path, Repository())[0].parent

    assert sorted(path.name for path in home.iterdir()) == ["first-1.0.jar", "second-1.0.jar"]
    assert sorted(path.name for path in home.parent.iterdir()) == [".lock", home.name]


def test_a_damaged_jar_is_fetched_again(tmp_path: Path) -> None:
    repository = Repository()
    damaged = resolve(tmp_path, repository)[1]
    damaged.write_bytes(b"secon")

    assert resolve(tmp_path, repository)[1].read_bytes() == b"second"
    assert repository.fetch_count == 2


def test_a_jar_with_a_wrong_checksum_is_refused_and_not_kept(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"org.example:second:1.0 came with the SHA-256"):
        resolve(tmp_path, Repository({"second": b"evil"}))

    assert [path.name for path in (tmp_path / "jars").iterdir()] == [".lock"]


def test_what_a_kill_has_left_half_way_is_cleared_away(tmp_path: Path) -> None:
    leftover = tmp_path / "jars" / ".fetch-dead"
    leftover.mkdir(parents=True)
    (leftover / "first-1.0.jar").write_bytes(b"fir")

    resolve(tmp_path, Repository())

    assert not leftover.exists()


def test_of_two_that_come_at_once_one_fetches_and_the_other_waits(tmp_path: Path) -> None:
    repository = Repository()
    found: list[list[Path]] = []
    threads = [threading.Thread(target=lambda: found.append(resolve(tmp_path, repository))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(found) == 4
    assert repository.fetch_count == 1


def test_jars_of_the_users_own_are_used_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "first-1.0.jar").write_bytes(b"my own build")
    (tmp_path / "org.example_second-1.0.jar").write_bytes(b"second")

    found = resolve_jars(tmp_path / "cache", tmp_path, jars=TWO)

    assert [path.name for path in found] == ["first-1.0.jar", "org.example_second-1.0.jar"]
    assert not (tmp_path / "cache").exists()


def test_each_jar_that_the_users_directory_lacks_is_named(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"lacks first-1.0.jar, second-1.0.jar.*unset HEADRACE_JARS"):
        resolve_jars(tmp_path / "cache", tmp_path, jars=TWO)


def test_a_cache_that_can_not_be_written_says_how_to_name_another(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")

    with pytest.raises(SetupError, match="HEADRACE_CACHE"):
        resolve(tmp_path / "file", Repository())
