"""An archive of Spark's classes, with which Java starts in two thirds of the time.

    CACHE/classes/<digest>-<size in bytes>.jsa    as Java made it
    CACHE/classes/.lock                           held while one is being made
    CACHE/classes/.make-*                         work in progress, or what a kill left of it

At each start Java reads thousands of classes from jars and checks them. An archive holds them as they are
after that (class data sharing): those that a pipeline had loaded by the end of a first batch, which a child
process runs for it (see train.py).

An archive belongs to one Java, one Spark and one class path; the digest is that of all three. Java looks at
versions, class path and the ages of jars itself, too, and reads classes as ever where something differs. What
it does not look at, and crashes on, is a file that was cut off: hence the size in the name. An archive may be
removed at any time, also while it is used.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from headrace.errors import SetupError
from headrace.streams.java import Java

MAKE_S_MAX: Final = 600.0
"""How long making one may take: a start of Spark, a batch, and a pass over all classes."""
ARCHIVES_MAX: Final = 3
"""How many are kept, the newest, for several environments of Python; each has about 200 MB."""
_DIRECTORY: Final = "classes"
_SUFFIX: Final = ".jsa"
_WORK: Final = ".make-"
_TRAIN: Final = "headrace.streams.train"

Train = Callable[[Path, Path], None]
"""Run a pipeline in this directory, and put the archive there."""


def archive_digest(java: Java, jars: Sequence[Path]) -> str:
    """What names the archive for this Java, the Spark that is installed, and these jars on its class path."""
    release = java.home / "release"
    spark = find_spec("pyspark")
    home = Path(spark.origin).parent if spark is not None and spark.origin is not None else Path()
    parts = (
        release.read_text() if release.is_file() else f"{java.home} {java.version}",
        f"{home} {version('pyspark')}",
        # As Java tells them apart: jars that were installed anew are others to it, though they are alike.
        *(f"{path} {_size_and_age(path)}" for path in (*sorted((home / "jars").glob("*.jar")), *jars)),
    )
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


def _size_and_age(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns


def find_archive(cache_dir: Path, digest: str) -> Path | None:
    """The archive of this name, if there is one that is whole."""
    for path in (cache_dir / _DIRECTORY).glob(f"{digest}-*{_SUFFIX}"):
        # One that is replaced in this moment is as good as none.
        with suppress(FileNotFoundError):
            if path.name == _name(digest, path.stat().st_size):
                return path
    return None


def use_options(archive: Path) -> tuple[str, ...]:
    """Options of Java, each quoted, to start with the archive; without a word where it does not fit."""
    return (f'"-XX:SharedArchiveFile={archive}"', "-Xlog:cds*=off", "-Xlog:class+path=off")


def make_options(archive: Path) -> str:
    """Options of Java to make it when it ends."""
    return f'"-XX:ArchiveClassesAtExit={archive}" -Xlog:cds*=off'


def ensure_archive(
    cache_dir: Path, digest: str, train: Train, on_wait: Callable[[], None] = lambda: None
) -> Path:
    """The archive of this name, made where there is none that is whole.

    `on_wait` is called before it waits for another process that is making one.

    Safe to call from several processes at once: one makes it, the others wait for it.
    """
    directory = cache_dir / _DIRECTORY
    if (found := find_archive(cache_dir, digest)) is not None:
        return found
    try:
        with _making(directory, on_wait):
            return find_archive(cache_dir, digest) or _make(directory, digest, train)
    except OSError as error:
        raise SetupError(_refusal(f"{directory} can't be written ({error.strerror})")) from error


def train_in_child(bootstrap: str, work: Path, made: Path) -> None:
    """Let train.py do it, on a broker that nobody else needs, in a process that does not outlive this one."""
    ours, theirs = os.pipe()
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "headrace.child", "-m", _TRAIN, bootstrap, str(work), str(made)],
            stdin=ours,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=MAKE_S_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise SetupError(_refusal(f"it took longer than {MAKE_S_MAX:.0f} s")) from error
    finally:
        os.close(ours)
        os.close(theirs)
    if ended.returncode != 0:
        lines = (ended.stderr.strip() or ended.stdout.strip()).splitlines()
        raise SetupError(_refusal(lines[-1] if lines else f"Java ended with exit code {ended.returncode}"))


@contextmanager
def _making(directory: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Held by one process at a time, and let go by the kernel when that process dies."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _make(directory: Path, digest: str, train: Train) -> Path:
    """Called with the lock held, so all work in progress is what a kill has left."""
    for leftover in directory.glob(f"{_WORK}*"):
        shutil.rmtree(leftover)
    work = Path(tempfile.mkdtemp(prefix=_WORK, dir=directory))
    try:
        made = work / f"made{_SUFFIX}"
        train(work, made)
        if not made.is_file():
            raise SetupError(_refusal("this Java makes no archives"))
        with made.open("rb") as file:
            os.fsync(file.fileno())
        archive = made.replace(directory / _name(digest, made.stat().st_size))
    finally:
        # Java may still be writing here, if it was given up.
        shutil.rmtree(work, ignore_errors=True)
    _remove_others(archive, digest)
    return archive


def _refusal(reason: str) -> str:
    return f"Spark's classes could not be archived: {reason}. Pipelines run without an archive, too"


def _name(digest: str, size_bytes: int) -> str:
    return f"{digest}-{size_bytes}{_SUFFIX}"


def _changed_s(path: Path) -> float:
    """When it was written; long ago, if somebody has just removed it."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _remove_others(archive: Path, digest: str) -> None:
    """Those that it replaces, and the oldest of all."""
    others = sorted(
        (path for path in archive.parent.glob(f"*{_SUFFIX}") if path != archive),
        key=_changed_s,
        reverse=True,
    )
    replaced = [path for path in others if path.name.startswith(f"{digest}-")]
    kept = [path for path in others if path not in replaced]
    for path in (*replaced, *kept[ARCHIVES_MAX - 1 :]):
        path.unlink(missing_ok=True)
