"""Our broker as a process of its own, started as a user would."""

from __future__ import annotations

import compileall
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import headrace
from headrace.config import Durability
from headrace.errors import ChildFailed

READY: Final = "listening on "


@cache
def compile_package() -> None:
    """Have bytecode, as an installed package has: pip makes it, a working tree may have none yet."""
    compileall.compile_dir(Path(headrace.__file__).parent, quiet=1)


class HeadraceServer:
    """One `headrace broker`, with its data in a temporary directory."""

    def __init__(self, durability: Durability) -> None:
        self._durability = durability
        self._home = tempfile.TemporaryDirectory(prefix="headrace-bench-")
        self._process: subprocess.Popen[str] | None = None
        self.bootstrap = ""
        self.start_s = 0.0

    def __enter__(self) -> Self:
        compile_package()
        options = ("--listen", "127.0.0.1:0", "--data", self._home.name, "--durability", self._durability)
        begin_s = time.perf_counter()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "headrace", "broker", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self._process.stdout is not None
        line = ""
        for line in self._process.stdout:
            if READY in line:
                break
        else:
            raise ChildFailed(f"the broker did not start: {line}")
        self.start_s = time.perf_counter() - begin_s
        self.bootstrap = line.split(READY)[1].split(",")[0]
        return self

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
