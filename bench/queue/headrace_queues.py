"""Our queues as a process of their own, started as a user would."""

from __future__ import annotations

import compileall
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import headrace
from headrace.config import Address, Durability
from headrace.errors import ChildFailed

READY: Final = "queues listening on "


class HeadraceQueues:
    """One `headrace broker` with queues, and its data in a temporary directory."""

    def __init__(self, durability: Durability = "sync") -> None:
        self._durability = durability
        self._home = tempfile.TemporaryDirectory(prefix="headrace-bench-")
        self._process: subprocess.Popen[str] | None = None
        self.port = 0

    def __enter__(self) -> Self:
        # As an installed package has it: pip makes bytecode, a working tree may have none yet.
        compileall.compile_dir(Path(headrace.__file__).parent, quiet=1)
        options = ("--listen", "127.0.0.1:0", "--amqp-listen", "127.0.0.1:0", "--data", self._home.name)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "headrace", "broker", *options, "--durability", self._durability],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self._process.stdout is not None
        line = ""
        for line in self._process.stdout:
            if READY in line:
                self.port = Address.parse(line.split(READY)[1].split()[0]).port
                return self
        raise ChildFailed(f"the broker did not start: {line}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.communicate()
        self._home.cleanup()

    @property
    def pid(self) -> int:
        """The broker's process."""
        assert self._process is not None
        return self._process.pid
