"""What commands share that run several parts in the foreground until Ctrl-C."""

from __future__ import annotations

import re
import signal
import socket
from contextlib import suppress
from types import FrameType
from typing import Final, NoReturn

from rich.markup import escape

from headrace.cli.output import say
from headrace.config import Address
from headrace.errors import ConfigError
from headrace.supervisor import OnLine

_DONE_ON_THE_PAGE: Final = re.compile(r"\S+ \S+ [A-Z]+ headrace\.console\.actions: (.+)")
"""A log line of the console, as text: see headrace.logs."""


def line_printer(*, verbose: bool) -> OnLine:
    """Prints what the parts say: all of it, or only what is worth a line."""

    def print_line(name: str, line: str) -> None:
        shown = line if verbose else worth_a_line(line)
        if shown is not None:
            # Output must be read on even when there is no terminal any more to show it.
            with suppress(OSError):
                say(f"[dim]{name:<9}[/dim] {escape(shown)}")

    return print_line


def worth_a_line(line: str) -> str | None:
    """What to show of a line: that a part has ended and why, and what somebody did on the page."""
    if line.startswith(("ended with", "error:")):
        return line
    done = _DONE_ON_THE_PAGE.match(line)
    return done.group(1) if done else None


def stop_on_signals() -> None:
    """SIGTERM and a closed terminal stop the command the way Ctrl-C does."""

    def interrupt(_signal: int, _frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)


def ignore_signals() -> None:
    """Stopping takes a few seconds and must not be cut short by a second Ctrl-C."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def free_address(part: str, wanted_port: int) -> Address:
    """The wanted port on loopback, or another, which is said, where it is taken."""
    port = free_port(wanted_port)
    if wanted_port not in {0, port}:
        say(f"{part:<9} port {wanted_port} is taken, using {port}")
    return Address("127.0.0.1", port)


def free_port(preferred: int) -> int:
    """The preferred port if nobody has it, else another that is free.

    The number is fixed before the children start, so that one that is started again comes back at the
    address that the others know.
    """
    for port in (preferred, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise ConfigError("no free port on 127.0.0.1: close some programs and try again")
