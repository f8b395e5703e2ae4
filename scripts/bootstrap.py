"""Make the virtual environment and install exactly what requirements.lock says.

Runs on the system's Python with nothing installed, so it uses the standard library only. A second run
notices that nothing changed and returns at once.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
STAMP = VENV / "headrace-installed"
PYTHON_VERSION_MIN = (3, 11)
NEWER_PYTHONS = ("python3.14", "python3.13", "python3.12", "python3.11")


def main() -> None:
    """Bring the virtual environment up to date with the lock file."""
    if sys.version_info < PYTHON_VERSION_MIN:
        run_again_with_newer_python()
    wanted = fingerprint()
    if STAMP.exists() and STAMP.read_text() == wanted:
        return
    STAMP.unlink(missing_ok=True)
    if not has_venv():
        make_venv()
    say("installing the packages of requirements.lock (a minute or two the first time)")
    pip("install", "--require-hashes", "--requirement", str(ROOT / "requirements.lock"))
    pip("install", "--no-deps", "--editable", str(ROOT))
    STAMP.write_text(wanted)
    say("the virtual environment .venv is ready")


def fingerprint() -> str:
    """What the environment depends on: the lock file, the package's metadata and this Python."""
    digest = hashlib.sha256(sys.version.encode())
    for name in ("requirements.lock", "pyproject.toml"):
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


def has_venv() -> bool:
    """Whether .venv is there, whole, and made with this Python: then it only needs the right packages."""
    command = [str(VENV / "bin" / "python"), "-c", "import pip, sys; print(sys.version)"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return False
    return found.returncode == 0 and found.stdout.strip() == sys.version.strip()


def make_venv() -> None:
    """Create .venv, installing Debian's venv package first where it is missing and we may."""
    say(f"making the virtual environment .venv with Python {sys.version.split()[0]}")
    command = [sys.executable, "-m", "venv", "--clear", str(VENV)]
    if subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode == 0:
        return
    package = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        stop(f"this Python can't make virtual environments: install the package {package} and run make again")
    say(f"installing {package} with apt-get")
    apt_get("update")
    apt_get("install", package)
    if subprocess.run(command, check=False).returncode != 0:
        stop(f"{sys.executable} -m venv still fails, see above: install a full Python 3.11 or newer")


def run_again_with_newer_python() -> None:
    """Replace this process by a Python that is new enough, or say what to install."""
    for name in NEWER_PYTHONS:
        if found := shutil.which(name):
            os.execv(found, [found, __file__])  # noqa: S606 - the same script, in a newer Python
    have = ".".join(map(str, sys.version_info[:3]))
    stop(f"Headrace needs Python 3.11 or newer and this is {have}: install one, then make PYTHON=python3.11")


def pip(*arguments: str) -> None:
    """Run pip inside the environment; its own message says what went wrong."""
    command = [str(VENV / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", *arguments]
    if subprocess.run([*command, "--quiet"], check=False).returncode != 0:
        stop(f"pip {arguments[0]} failed, see above: is the package index reachable?")


def apt_get(*arguments: str) -> None:
    """Run apt-get without questions."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "-qq", "-y", *arguments], env=environment, check=False)


def say(line: str) -> None:
    """Tell what is being done."""
    print(f"setup: {line}", flush=True)


def stop(sentence: str) -> None:
    """End with one sentence that says what to do."""
    sys.exit(f"setup: {sentence}")


if __name__ == "__main__":
    main()
