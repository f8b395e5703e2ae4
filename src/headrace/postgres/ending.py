"""Ends a server: in good order if it will, as a crash does if it won't."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Final

from headrace.errors import ChildFailed
from headrace.logs import fields
from headrace.postgres import postmaster

QUIT_S_MAX: Final = 10.0
"""How long an immediate shutdown may take; then nothing but a kill is left."""
_POLL_S: Final = 0.02

_logger = logging.getLogger(__name__)


def end_process(process: subprocess.Popen[bytes], stop_s_max: float) -> None:
    """End a server that we have started, and return when it is gone."""
    for number, within_s in _steps(stop_s_max):
        process.send_signal(number)
        try:
            process.wait(within_s)
        except subprocess.TimeoutExpired:
            continue
        return
    process.wait()


def end_left_over(cluster_dir: Path, stop_s_max: float) -> None:
    """End a server of this directory that an earlier process of ours has left. We hold its lock."""
    left = postmaster.read(cluster_dir)
    if left is None:
        return
    if postmaster.is_running(left.pid, cluster_dir):
        _logger.warning(
            "stopping the PostgreSQL that a crash has left running in %s",
            cluster_dir,
            extra=fields(pid=left.pid, cluster=str(cluster_dir)),
        )
        _end_pid(left.pid, cluster_dir, stop_s_max)
    # Nobody runs it: were the file left, and its process id another's by now, the server would not start.
    (cluster_dir / postmaster.FILE_NAME).unlink(missing_ok=True)


def _end_pid(pid: int, cluster_dir: Path, stop_s_max: float) -> None:
    for number, within_s in _steps(stop_s_max):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return
        deadline_s = time.monotonic() + within_s
        while time.monotonic() < deadline_s:
            if not postmaster.is_running(pid, cluster_dir):
                return
            time.sleep(_POLL_S)
    raise ChildFailed(f"PostgreSQL in {cluster_dir} (process {pid}) can't be stopped: end it, and try again")


def _steps(stop_s_max: float) -> tuple[tuple[signal.Signals, float], ...]:
    """Fast, immediate, at once; and how long each may take."""
    return (
        (signal.SIGINT, stop_s_max),
        (signal.SIGQUIT, QUIT_S_MAX),
        (signal.SIGKILL, QUIT_S_MAX),
    )
