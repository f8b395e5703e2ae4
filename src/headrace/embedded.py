"""What the servers that we bring along have in common: a port, a socket, a log, and an end with ours.

Should we be killed, a watcher stops the server: a shell that reads a pipe whose other end is ours, which
closes with us, however we go. It runs in a session of its own, so that no signal to ours reaches it.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Final

from headrace.config import MIB, Address
from headrace.errors import ConfigError

LOG_BYTES_MAX: Final = 16 * MIB
LAST_LINES_SHOWN: Final = 8
SOCKET_PATH_BYTES_MAX: Final = 103
"""What the shortest limit of a system, and the zero at the end, leave for the path of a socket."""
_WATCH: Final = 'read -r _; kill -{} "$1"'
"""Ends when the pipe is closed, and stops the server then."""


def log_of(home: Path) -> Path:
    """The file for what the server says, begun anew when it has grown too large."""
    path = home / "log"
    if path.exists() and path.stat().st_size > LOG_BYTES_MAX:
        path.replace(home / "log.old")
    path.touch(mode=0o600)
    return path


def last_lines(home: Path) -> str:
    """What the server said last, in a sentence."""
    lines = log_of(home).read_text(errors="replace").splitlines()[-LAST_LINES_SHOWN:]
    return "Its last lines were:\n" + "\n".join(f"  {line}" for line in lines)


def free_port(listen: Address, server: str) -> int:
    """The port that is wanted, or a free one; refused here, where the reason can be told."""
    family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((listen.host, listen.port))
        except OSError as error:
            raise ConfigError(
                f"{server} can't listen on {listen}: {error.strerror}. Choose another; 0 finds a free one"
            ) from error
        return int(probe.getsockname()[1])


def socket_dir(home: Path, name: str) -> Path:
    """A directory for a socket of this name: in the home, or elsewhere if its path would be too long."""
    directory = home / "run"
    if len(f"{directory}/{name}".encode()) > SOCKET_PATH_BYTES_MAX:
        directory = Path(tempfile.mkdtemp(prefix="headrace-"))
    directory.mkdir(mode=0o700, exist_ok=True)
    return directory


def watch(pid: int, number: signal.Signals, options: dict[str, Any]) -> subprocess.Popen[bytes]:
    """Let a server be sent a signal when we are gone. `options` say whom the watcher runs as."""
    return subprocess.Popen(
        ["/bin/sh", "-c", _WATCH.format(number.name.removeprefix("SIG")), "sh", str(pid)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
        **options,
    )


def end_watcher(watcher: subprocess.Popen[bytes]) -> None:
    """The server is gone and its number may be another's: the watcher must not signal it."""
    watcher.send_signal(signal.SIGKILL)
    watcher.wait()
    assert watcher.stdin is not None
    watcher.stdin.close()


def is_named(pid: int, path: Path) -> bool:
    """Whether a process has this path in its command line: a number alone may be another's by now."""
    return str(path) in _command_line(pid)


def _command_line(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except FileNotFoundError:
        if Path("/proc/self/cmdline").exists():
            return []
    except ProcessLookupError:
        return []
    if not _exists(pid):
        return []
    told = subprocess.run(
        ["ps", "-ww", "-o", "args=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return told.stdout.split()


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
