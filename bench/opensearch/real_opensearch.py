"""A real OpenSearch, to test with and to measure: one node on the loopback address, from its Maven artifacts.

    with OpenSearch() as search:
        httpx.get(search.url)

The jars are those of `opensearch_jars.txt`, each known by its checksum. They are fetched once, beside the
connector jars and by the same resolver; HEADRACE_CACHE and HEADRACE_JARS work as they do there. Java runs
`OneNode.java` with them, so it has to be one with a compiler. Whatever is missing raises SetupError, so that
a test can be skipped with its one line.

Its data and its log lie in a temporary directory that goes when it is stopped; `kill` and `start` leave them,
and its port. It ends with us, even when we are killed, where the system has `setpriv`.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from apache_kafka import ending_with_us, java_command, listed_jars
from headrace.config import default_cache_dir, default_jars_dir
from headrace.errors import ChildFailed, SetupError
from headrace.streams.jars import Show, resolve_jars
from headrace.streams.java import find_java

VERSION: Final = "2.19.5"
JAR_LIST: Final = Path(__file__).with_name("opensearch_jars.txt")
SOURCE: Final = Path(__file__).with_name("OneNode.java")
START_S_MAX: Final = 180.0
SETTINGS: Final = {
    "cluster.name": "headrace-test",
    "node.name": "one",
    "discovery.type": "single-node",
    "http.host": "127.0.0.1",
    "transport.host": "127.0.0.1",
    "transport.port": "0",
    "node.store.allow_mmap": "false",
    "cluster.routing.allocation.disk.threshold_enabled": "false",
}
"""What a single node needs that is to leave the machine as it is. All else is OpenSearch's default."""
BACKUPS: Final = "backups"
"""Where backups may be kept, in its directory."""
_LISTENING: Final = re.compile(r"^listening on port (\d+)$", re.MULTILINE)


def server_jars(show: Show = print) -> list[Path]:
    """The jars of the server, fetched where missing; SetupError if they can't be."""
    return resolve_jars(default_cache_dir(), default_jars_dir(), jars=listed_jars(JAR_LIST), show=show)


class OpenSearch:
    """One server, from `start` to `stop`; all belongs to one thread."""

    def __init__(self, *, settings: Mapping[str, str] | None = None, heap: str = "512m") -> None:
        """Settings add to `SETTINGS` or replace them; the heap is what -Xmx is given."""
        self._settings = {**SETTINGS, **(settings or {})}
        self._heap = heap
        self._process: subprocess.Popen[bytes] | None = None
        self._home: Path | None = None
        self._port = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """Where it answers. It asks for no password."""
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Return when the server answers, with the data that a killed one has left."""
        jars = server_jars()
        _check_compiler()
        if self._home is None:
            self._home = Path(tempfile.mkdtemp(prefix="opensearch-"))
        output_path = self._home / "output.log"
        settings = {
            **self._settings,
            "path.home": str(self._home),
            "path.repo": str(self._home / BACKUPS),
            "http.port": str(self._port),
        }
        command = [*java_command(jars, self._heap), str(SOURCE)]
        command += [f"{name}={value}" for name, value in settings.items()]
        with output_path.open("wb") as output:
            self._process = subprocess.Popen(
                [*ending_with_us(), *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            self._port = self._awaited_port(self._process, output_path)
        except BaseException:
            self.stop()
            raise

    def kill(self) -> None:
        """End it at once, as a crash does. Harmless when it isn't running."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """End it and remove its data."""
        self.kill()
        if self._home is not None:
            shutil.rmtree(self._home)
            self._home = None

    def _awaited_port(self, process: subprocess.Popen[bytes], output_path: Path) -> int:
        end = time.monotonic() + START_S_MAX
        while (found := _LISTENING.search(output := output_path.read_text(errors="replace"))) is None:
            last_lines = " | ".join(output.splitlines()[-5:])
            if process.poll() is not None:
                raise ChildFailed(f"OpenSearch ended with {process.returncode}: {last_lines}")
            if time.monotonic() > end:
                raise ChildFailed(f"OpenSearch did not start in {START_S_MAX:.0f} s: {last_lines}")
            time.sleep(0.05)
        return int(found[1])


def _check_compiler() -> None:
    java = find_java()
    modules = subprocess.run(
        [java.executable, "--list-modules"], capture_output=True, text=True, timeout=60, check=False
    )
    if "jdk.compiler" not in modules.stdout:
        raise SetupError(f"OpenSearch is started from source, and {java.home} has no compiler: install a JDK")
