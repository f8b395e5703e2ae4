"""Find the Java that Spark runs on, or install one where that may be done.

JAVA_HOME comes first, then PATH, as Spark itself looks; one that is missing or too old is passed over.
What is found on PATH may be a shim or a wrapper that lies nowhere near the Java that it starts, so Java
itself is asked where its home is. An installed Java has a file `release` in its home, which is not asked but
read: starting Java just for that takes a third of a second.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headrace.config import java_home
from headrace.errors import SetupError

JAVA_VERSION_MIN: Final = 17
PACKAGES: Final = ("openjdk-17-jre-headless", "openjdk-21-jre-headless", "default-jre-headless")
"""What to ask apt-get for, in this order: which of them exist depends on the release of the system."""

_VERSION_TIMEOUT_S: Final = 30
_INSTALL_TIMEOUT_S: Final = 900
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_RELEASE: Final = re.compile(r'^JAVA_VERSION="(?:1\.)?(\d+)', re.MULTILINE)
_HOME: Final = re.compile(r"^\s*java\.home = (.+?)\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """A Java that Spark can run on."""

    executable: Path
    version: int
    home: Path
    """What JAVA_HOME must be for this Java to be used."""


def find_java() -> Java:
    """The first Java that is new enough, or one sentence that says what to install."""
    too_old: list[str] = []
    for executable in _candidates():
        version, home = _known(executable)
        if version is not None and home is not None and version >= JAVA_VERSION_MIN:
            return Java(executable=executable, version=version, home=home)
        too_old.append(f"{executable} is {f'Java {version}' if version else 'no working Java'}")
    found = f" ({'; '.join(too_old)})" if too_old else ""
    raise SetupError(
        f"Spark needs Java {JAVA_VERSION_MIN} or newer and none was found by JAVA_HOME or on PATH{found}: "
        f"install one, such as the package {PACKAGES[0]}, or set JAVA_HOME"
    )


def install_java(show: Callable[[str], None] = print) -> Java:
    """Install a headless Java with apt-get, saying so; refuse where that can't or may not be done."""
    apt_get = shutil.which("apt-get")
    if apt_get is None or os.geteuid() != 0:
        reason = "there is no apt-get" if apt_get is None else "only root may run apt-get"
        raise SetupError(
            f"Java {JAVA_VERSION_MIN} or newer is missing and can't be installed from here ({reason}): "
            f"install one, such as the package {PACKAGES[0]}, or set JAVA_HOME"
        )
    show("java: apt-get update")
    _apt_get(apt_get, "update")
    for package in PACKAGES:
        show(f"java: apt-get install {package}")
        failure = _apt_get(apt_get, "install", "--yes", "--no-install-recommends", package)
        if failure is None:
            return find_java()
        show(f"java: {failure}")
    raise SetupError(
        f"apt-get could not install any of {', '.join(PACKAGES)}: install Java {JAVA_VERSION_MIN} or newer "
        "by hand, or set JAVA_HOME"
    )


def parse_version(text: str) -> int | None:
    """The feature version in what `java -version` prints: 17 of `17.0.15`, 8 of `1.8.0_402`."""
    match = _VERSION.search(text)
    return int(match[1]) if match else None


def parse_home(text: str) -> Path | None:
    """The home directory in what `java -XshowSettings:properties` prints."""
    match = _HOME.search(text)
    return Path(match[1]) if match else None


def _candidates() -> Iterator[Path]:
    home = java_home()
    if home is not None:
        yield home / "bin" / "java"
    on_path = shutil.which("java")
    if on_path is not None:
        yield Path(on_path)


def _known(executable: Path) -> tuple[int | None, Path | None]:
    """Version and home: as the file beside an installed Java says, which is quicker, else as Java says."""
    home = executable.resolve().parent.parent
    try:
        release = _RELEASE.search((home / "release").read_text())
    except (OSError, UnicodeDecodeError):
        release = None
    if release is not None and executable.is_file():
        return int(release[1]), home
    told = _ask(executable)
    return parse_version(told), parse_home(told)


def _ask(executable: Path) -> str:
    """What Java says of itself: its version and its properties; nothing if it does not run."""
    try:
        done = subprocess.run(
            [str(executable), "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_VERSION_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stderr + done.stdout


def _apt_get(apt_get: str, *arguments: str) -> str | None:
    """Run apt-get without questions. Returns the last thing it complained of, None when all went well."""
    done = subprocess.run(
        [apt_get, *arguments],
        capture_output=True,
        text=True,
        errors="replace",
        timeout=_INSTALL_TIMEOUT_S,
        check=False,
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
    )
    if done.returncode == 0:
        return None
    complaints = [line for line in done.stderr.splitlines() if line.strip()]
    return complaints[-1] if complaints else f"apt-get ended with {done.returncode}"
