"""From `make demo` in a fresh clone to the first alert on the page, and what all of it takes of memory.

    python bench/latency/first_alert.py

A clone of this repository, with its dependencies installed (`make venv`, which is timed apart) and Java and
the jars cached; then `make demo`, as a newcomer runs it: broker, generator, pipeline, page. The first alert
is there when the page's own numbers have one. Memory is what all processes of the demo have for themselves,
with their share of what they have in common (PSS), at its largest from the start to a minute after that
alert, sampled each second.
"""

from __future__ import annotations

import argparse
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import httpx
import psutil

ROOT: Final = Path(__file__).parents[2]
WITHIN_S: Final = 600.0
PAUSE_S: Final = 0.1
MB: Final = 1_000_000


@dataclass(slots=True, kw_only=True)
class Demo:
    """A running demo."""

    process: subprocess.Popen[str]
    started_s: float
    steps: list[tuple[float, str]] = field(default_factory=list)
    """What it has printed, and when."""
    memory_mb_max: float = 0.0
    _sampled_s: float = 0.0

    def read(self) -> None:
        """Keep what it prints."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.steps.append((time.monotonic() - self.started_s, line.rstrip()))

    def sample(self) -> None:
        """Add up its memory, once a second."""
        if time.monotonic() < self._sampled_s + 1:
            return
        self._sampled_s = time.monotonic()
        family = [psutil.Process(self.process.pid)]
        family += family[0].children(recursive=True)
        pss_bytes = 0
        for each in family:
            with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                pss_bytes += each.memory_full_info().pss
        self.memory_mb_max = max(self.memory_mb_max, pss_bytes / MB)

    def alert_count(self) -> int:
        """How many alerts the page has."""
        page = next((found for _at, line in self.steps if (found := _page(line))), None)
        if page is None:
            return 0
        try:
            stats = httpx.get(f"{page}/api/stats", timeout=WITHIN_S).json()
        except httpx.TransportError:
            return 0
        return int(stats["alerts"]["alert_count"])


def _page(line: str) -> str | None:
    found = re.search(r"^page .*?(http://127\.0\.0\.1:\d+)", line)
    return found[1] if found else None


@contextmanager
def running(clone: Path) -> Iterator[Demo]:
    """`make demo` there, which is ended by Ctrl-C."""
    started_s = time.monotonic()
    with subprocess.Popen(
        ["make", "demo"], cwd=clone, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        demo = Demo(process=process, started_s=started_s)
        threading.Thread(target=demo.read, daemon=True).start()
        try:
            yield demo
        finally:
            for each in psutil.Process(process.pid).children():
                each.send_signal(signal.SIGINT)
            process.wait(WITHIN_S)


def measure(clone: Path, after_s: float) -> tuple[float, float]:
    """Seconds to the first alert, and megabytes at most."""
    with running(clone) as demo:
        while not demo.alert_count():
            demo.sample()
            if demo.process.poll() is not None or time.monotonic() > demo.started_s + WITHIN_S:
                said = "\n".join(line for _at, line in demo.steps)
                sys.exit(f"no alert came within {WITHIN_S:.0f} s; the demo said:\n{said}")
            time.sleep(PAUSE_S)
        first_s = time.monotonic() - demo.started_s
        while time.monotonic() < demo.started_s + first_s + after_s:
            demo.sample()
            time.sleep(PAUSE_S)
        for at_s, line in demo.steps:
            print(f"{at_s:6.1f} s  {line.partition('?token=')[0]}", file=sys.stderr)
        return first_s, demo.memory_mb_max


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, default=3, help="each in a clone of its own (default: 3)")
    parser.add_argument("--after", type=float, default=60.0, help="seconds that memory is watched after it")
    options = parser.parse_args()
    firsts, memories, installs = [], [], []
    for _ in range(options.runs):
        with tempfile.TemporaryDirectory() as directory:
            clone = Path(directory) / "clone"
            subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
            begun_s = time.monotonic()
            subprocess.run(["make", "venv"], cwd=clone, check=True, stdout=subprocess.DEVNULL)
            installs.append(time.monotonic() - begun_s)
            first_s, memory_mb = measure(clone, options.after)
        firsts.append(first_s)
        memories.append(memory_mb)
    print(f"{options.runs} runs: median (smallest to largest)\n")
    print("| | |\n|---|---|")
    print(f"| installing, wheels cached, s | {_spread(installs)} |")
    print(f"| `make demo` to the first alert, s | {_spread(firsts)} |")
    print(f"| memory of everything, MB | {_spread(memories)} |")


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):,.0f} ({min(values):,.0f} to {max(values):,.0f})"


if __name__ == "__main__":
    main()
