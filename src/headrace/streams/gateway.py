"""Spark's Java process: started beside other work, and ended for sure.

Java takes a second or two to start and needs nothing for it but options that are known early, so `headrace
run` starts it first, in a thread, and loads modules and pipelines and asks the broker meanwhile. Whoever
starts a session calls `launch_java` as well: it waits for the process that is on its way, or starts one, or
does nothing where one runs. So it does not matter whether anybody came first.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway

from headrace.errors import HeadraceError, SetupError
from headrace.streams.failure import first_line

JAVA_EXIT_S_MAX: Final = 4.0
"""How long Java may take to end once it has nothing left to do."""

_launching: Final = threading.Lock()


def launch_java(options: Mapping[str, str], log: Path) -> None:
    """Have Java run, with these options of Spark if it has to be started. Safe to call from any thread.

    What Java itself says goes to the log: it greets with a warning about a module that Spark asks for, before
    any log of Spark's is set up.
    """
    with _launching:
        if is_java_running():
            return
        conf = SparkConf(loadDefaults=False).setAll(list(options.items()))
        log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            with log.open("ab") as errors:
                gateway = launch_gateway(conf, {"stderr": errors})  # type: ignore[no-untyped-call] # has none
        except PySparkRuntimeError as error:
            raise SetupError(
                f"Spark could not start: {first_line(error)} Java's own words are in {log}"
            ) from error
        SparkContext._ensure_initialized(gateway=gateway)  # noqa: SLF001 - there is no public way to it


@contextmanager
def java_beside(options: Mapping[str, str], log: Path) -> Iterator[None]:
    """Start Java while something else is done. It is ended afterwards, unless a session has it."""

    def launch() -> None:
        # Whoever starts the session meets the same error, and is where it can be told.
        with suppress(HeadraceError, OSError):
            launch_java(options, log)

    was_running = is_java_running()
    thread = threading.Thread(target=launch, name="start-java")
    thread.start()
    try:
        yield
    finally:
        thread.join()
        if not was_running and SparkContext._active_spark_context is None:  # noqa: SLF001 - likewise
            end_java()


def is_java_running() -> bool:
    """Whether there is a Java process to make sessions in."""
    return SparkContext._gateway is not None  # noqa: SLF001 - there is no public way to it


def kill_java() -> None:
    """Kill the Java process of the session, if there is one: whoever waits for an answer of it gets none."""
    context = SparkContext._active_spark_context  # noqa: SLF001 - there is no public way to it
    if context is not None:
        # Its server would print a trace about the client that breaks off.
        server: Any = context._accumulatorServer  # noqa: SLF001 - likewise
        server.handle_error = _ignore_error
    gateway = SparkContext._gateway  # noqa: SLF001 - likewise
    if gateway is not None:
        gateway.proc.kill()


def _ignore_error(_request: object, _client_address: object) -> None:
    pass


def end_java() -> None:
    """End Java, if it runs: Spark leaves it running until Python ends."""
    gateway = SparkContext._gateway  # noqa: SLF001 - there is no public way to it
    if gateway is None:
        return
    gateway.shutdown()
    # It ends when its standard input closes, which also happens when this process is killed.
    gateway.proc.stdin.close()
    try:
        gateway.proc.wait(timeout=JAVA_EXIT_S_MAX)
    except subprocess.TimeoutExpired:
        gateway.proc.kill()
        gateway.proc.wait()
    SparkContext._gateway = None  # noqa: SLF001 - so that a later session starts a new one
    SparkContext._jvm = None  # noqa: SLF001 - likewise
