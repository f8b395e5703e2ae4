"""The jars that Spark is given: pinned, each known by its checksum, fetched once into a cache.

    CACHE/jars/<digest of the set>/<artifact>-<version>.jar     complete and verified, or not there at all
    CACHE/jars/.lock                                            held while a set is being fetched
    CACHE/jars/.fetch-*                                         work in progress, or what a kill left of it

The connector's jars are pinned one by one, because its own dependencies can't all be had: the set below is
the one that is known to work with Spark 4.3.0. It is resolved by Spark's own resolver, in a child process,
without transitive lookup. One jar more, a set of its own, makes checkpoints cheaper, and may be missing.

A set's directory appears by one rename, so a kill half-way leaves no broken cache; a file that has been
damaged since is noticed by its checksum, and the set is fetched again.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headrace.errors import SetupError
from headrace.streams.failure import first_line

FETCH_S_MAX: Final = 300.0
"""A machine whose packets are dropped on the way gets an answer after this long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Jar:
    """One artifact of a Maven repository, in one version."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def coordinate(self) -> str:
        """How Maven names it."""
        return f"{self.group}:{self.artifact}:{self.version}"

    @property
    def filename(self) -> str:
        """What its file is called in a Maven repository, and here."""
        return f"{self.artifact}-{self.version}.jar"

    @property
    def resolved_filename(self) -> str:
        """What Spark's resolver calls its file."""
        return f"{self.group}_{self.filename}"


JARS: Final = (
    Jar(
        group="org.apache.spark",
        artifact="spark-sql-kafka-0-10_2.13",
        version="4.2.0",
        sha256="64539c45e5d39f7ddb747312c239f38f5208d08c1a0ddf7d70beb2fbd9373705",
    ),
    Jar(
        group="org.apache.spark",
        artifact="spark-token-provider-kafka-0-10_2.13",
        version="4.0.0",
        sha256="f2be3b76f9e6cbe63379d4e4e0dc14f59dbf056ae2ad16ff15ac108004c86767",
    ),
    Jar(
        group="org.apache.kafka",
        artifact="kafka-clients",
        version="3.9.2",
        sha256="014b4ef36884478a932641818b080c36a8f8e2e92dc771e800c9d2694f4f83d8",
    ),
    Jar(
        group="org.apache.commons",
        artifact="commons-pool2",
        version="2.13.1",
        sha256="f77a5060d6936a9144023584232f9de3f2248f1abfe156e9d31795f18770674f",
    ),
)

CHECKPOINT_JAR: Final = Jar(
    group="com.globalmentor",
    artifact="hadoop-bare-naked-local-fs",
    version="0.1.0",
    sha256="e0cc30fb0531eb0b59468dc0abf5b257533d2365b5e9f45e795edd707aa78c62",
)
"""A local file system that sets no permissions. Hadoop's own forks a process for that, for each file that a
checkpoint gets, which takes longer than writing it. Without it all is the same, and slower."""

Show = Callable[[str], None]
Fetch = Callable[[tuple[Jar, ...], Path, Show], None]


def resolve_jars(
    cache_dir: Path,
    jars_dir: Path | None,
    *,
    jars: tuple[Jar, ...] = JARS,
    show: Show = print,
    fetch: Fetch | None = None,
) -> list[Path]:
    """The jars' files: those of `jars_dir` where it is given, else of the cache, fetched where missing.

    Safe to call from several processes at once: one fetches, the others wait for it.
    """
    if jars_dir is not None:
        return _given(jars, jars_dir)
    home = cache_dir / "jars" / _digest_of(jars)
    if not _is_complete(jars, home):
        with _fetch_lock(cache_dir / "jars"):
            if not _is_complete(jars, home):
                _fetch_into(home, jars, show, fetch or fetch_with_spark)
    return [home / jar.filename for jar in jars]


def are_jars_here(cache_dir: Path, jars_dir: Path | None, *, jars: tuple[Jar, ...] = JARS) -> bool:
    """Whether nothing has to be fetched."""
    if jars_dir is None:
        return _is_complete(jars, cache_dir / "jars" / _digest_of(jars))
    try:
        _given(jars, jars_dir)
    except SetupError:
        return False
    return True


def find_checkpoint_jar(cache_dir: Path, jars_dir: Path | None, *, jar: Jar = CHECKPOINT_JAR) -> Path | None:
    """The file of the jar for checkpoints, where it is; nothing is fetched."""
    if jars_dir is not None:
        return _first_file(jars_dir / jar.filename, jars_dir / jar.resolved_filename)
    home = cache_dir / "jars" / _digest_of((jar,))
    return home / jar.filename if _is_complete((jar,), home) else None


def fetch_with_spark(jars: tuple[Jar, ...], directory: Path, show: Show) -> None:
    """Let Spark's resolver, in a child process, put the jars into the directory."""
    child = subprocess.Popen(
        [sys.executable, "-m", "headrace.streams.fetch_jars", str(directory), *(j.coordinate for j in jars)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    try:
        output, errors = child.communicate(timeout=FETCH_S_MAX)
    except subprocess.TimeoutExpired as error:
        raise SetupError(_cannot_fetch(jars, f"no answer within {FETCH_S_MAX:.0f} s")) from error
    finally:
        child.kill()
        child.wait()
    if child.returncode != 0:
        raise SetupError(_cannot_fetch(jars, _complaint(output, errors)))
    for jar in jars:
        (directory / "jars" / jar.resolved_filename).rename(directory / jar.filename)
        show(f"jars: {jar.coordinate}")


def _fetch_into(home: Path, jars: tuple[Jar, ...], show: Show, fetch: Fetch) -> None:
    """Fetch, verify, then make the whole set appear at once. Called with the lock held."""
    for leftover in home.parent.glob(".fetch-*"):
        shutil.rmtree(leftover)
    show(f"jars: fetching {', '.join(jar.filename for jar in jars)}, once, into {home}")
    work = Path(tempfile.mkdtemp(prefix=".fetch-", dir=home.parent))
    try:
        fetch(jars, work, show)
        for jar in jars:
            _verify(jar, work / jar.filename)
        for path in work.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
        if home.exists():
            shutil.rmtree(home)
        work.rename(home)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _given(jars: tuple[Jar, ...], jars_dir: Path) -> list[Path]:
    """The files of a directory that the user keeps, by either of the names that they may have there.

    Their checksums are the user's own affair: a rebuilt or a newer jar under the same name is welcome.
    """
    found = {jar: _first_file(jars_dir / jar.filename, jars_dir / jar.resolved_filename) for jar in jars}
    missing = [jar.filename for jar, path in found.items() if path is None]
    if missing:
        raise SetupError(
            f"HEADRACE_JARS is {jars_dir}, which lacks {', '.join(missing)}: put the files there, or unset "
            "HEADRACE_JARS to have them downloaded"
        )
    return [path for path in found.values() if path is not None]


def _first_file(*paths: Path) -> Path | None:
    return next((path for path in paths if path.is_file()), None)


def _is_complete(jars: tuple[Jar, ...], home: Path) -> bool:
    return all((home / jar.filename).is_file() and _sha256(home / jar.filename) == jar.sha256 for jar in jars)


def _verify(jar: Jar, path: Path) -> None:
    found = _sha256(path)
    if found != jar.sha256:
        raise SetupError(
            f"{jar.coordinate} came with the SHA-256 {found} where {jar.sha256} was expected: it is not "
            "used; try again, and mistrust the repository if it stays so"
        )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest_of(jars: tuple[Jar, ...]) -> str:
    return hashlib.sha256(" ".join(jar.sha256 for jar in jars).encode()).hexdigest()[:12]


@contextmanager
def _fetch_lock(directory: Path) -> Iterator[None]:
    """Held by one process at a time, and let go by the kernel when that process dies."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = (directory / ".lock").open("w")
    except OSError as error:
        raise SetupError(
            f"the connector jars can't be kept in {directory} ({error.strerror}): name another directory "
            "with HEADRACE_CACHE"
        ) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _cannot_fetch(jars: tuple[Jar, ...], reason: str) -> str:
    return (
        f"the connector jars could not be fetched from Maven Central ({reason}): get "
        f"{', '.join(jar.coordinate for jar in jars)} on a machine that can, put the files into a directory, "
        "and name it with HEADRACE_JARS"
    )


def _complaint(output: str, errors: str) -> str:
    """The line that tells most of what a resolver printed."""
    lines = [line.strip() for line in (output + "\n" + errors).splitlines() if line.strip()]
    telling = ("Server access error", "unresolved dependency", "not found", "Exception", "rror")
    for words in telling:
        for line in lines:
            if words in line:
                return first_line(line.lstrip(": "))
    return lines[-1] if lines else "the resolver said nothing"
