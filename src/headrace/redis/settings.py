"""The file of settings that an embedded Redis is started with. No I/O.

Redis answers when a change is in its append-only file, and with `appendfsync always` when that is on disk.
Nothing is ever evicted: a cache that follows a log is a copy, not a guess.
"""

from __future__ import annotations

from pathlib import Path

from headrace.config import Address


def settings(
    *,
    data: Path,
    pid_file: Path,
    password: str,
    listen: Address | None,
    socket: Path | None,
    is_durable: bool,
) -> str:
    """The file's text. It listens where it is told to, or on the socket."""
    lines = [
        ("dir", str(data)),
        ("pidfile", str(pid_file)),
        ("requirepass", password),
        ("daemonize", "no"),
        # So that the process can be told by its command line.
        ("set-proc-title", "no"),
        ("appendonly", "yes"),
        ("appendfsync", "always" if is_durable else "no"),
        ("save", ""),
        ("maxmemory-policy", "noeviction"),
        ("port", str(listen.port) if listen else "0"),
    ]
    if listen is not None:
        lines.append(("bind", listen.host))
    if socket is not None:
        lines += [("unixsocket", str(socket)), ("unixsocketperm", "700")]
    return "".join(f"{name} {_quoted(value)}\n" for name, value in lines)


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
