"""Run a module or a script as a child that does not outlive its parent.

    python -m headrace.child -m headrace broker
    python -m headrace.child path/to/script.py ARGUMENTS

The parent holds the other end of our standard input and never writes to it. When that pipe closes, the
parent is gone, however it went (also by kill -9), and this process ends as if it had been sent SIGTERM; and
if that does not end it in time, for sure.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Final

from headrace.errors import ConfigError

STOP_WITHIN_S: Final = 30.0


def end_with_parent() -> None:
    """Send SIGTERM to this process as soon as its standard input closes."""

    def watch() -> None:
        while os.read(sys.stdin.fileno(), 4096):
            pass
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(STOP_WITHIN_S)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="end-with-parent", daemon=True).start()


def main() -> None:
    """Watch the parent, then become the program that was asked for."""
    arguments = sys.argv[1:]
    is_module = arguments[:1] == ["-m"]
    program = arguments[1:] if is_module else arguments
    if not program:
        raise ConfigError("headrace.child needs `-m MODULE` or a script to run")
    end_with_parent()
    sys.argv = program
    if is_module:
        runpy.run_module(program[0], run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, str(Path(program[0]).parent))
        runpy.run_path(program[0], run_name="__main__")


if __name__ == "__main__":
    main()
