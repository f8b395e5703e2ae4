"""What all tests have in common: no test depends on how fast the machine is, and the long ones come first."""

from __future__ import annotations

import faulthandler
import gc
import os
from collections.abc import Generator
from typing import Final

import pytest
from hypothesis import HealthCheck, settings

# A broker reads this ahead on a thread of its own. Under pytest, what is loaded may have to be parsed, and
# Python 3.11 mixes up threads that parse at the same time: python/cpython#106905.
import headrace.kafka.consumer_groups  # noqa: F401

# Most of what Java's second compiler would do is never made use of by a process that lives for seconds, and
# takes half of the processor meanwhile. Without it, Java thinks that a fifth of the room will do for compiled
# code. A hundred tests' queries need more, and where there is no room nothing is compiled any more.
os.environ.setdefault(
    "JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
)

BETWEEN_TESTS_S_MAX: Final = 1500.0
"""How long a worker may have nothing to do, because another has a long test to finish."""

settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


_LEFT_OPEN = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
"""kafka-python drops connections that it gives up while they are made, and leaves their sockets open."""


_ONCE_MORE = pytest.mark.flaky(reruns=1)
"""Clients and browsers of others stumble now and then. What fails with them is tried once more, and the
summary names it as RERUN. Nothing else is: what is lost once in a hundred kills is lost."""


_STDERR = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    """Keep the way to the terminal, which is not captured yet."""
    config.stash[_STDERR] = os.dup(2)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Let go of what was kept."""
    faulthandler.cancel_dump_traceback_later()
    os.close(config.stash[_STDERR])


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """End a process that hangs between two tests, too, and say where it was: pytest itself watches tests."""
    try:
        return (yield)
    finally:
        stderr = item.config.stash[_STDERR]
        faulthandler.dump_traceback_later(BETWEEN_TESTS_S_MAX, exit=True, file=stderr)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Bear with what clients do, and begin with what takes long: no core is to wait for it at the end."""
    for item in items:
        if "kafka_python" in item.nodeid.replace("-", "_"):
            item.add_marker(_LEFT_OPEN)
        if "contract" in item.path.parts or item.get_closest_marker("browser") is not None:
            item.add_marker(_ONCE_MORE)
    worker_count = getattr(config, "workerinput", {}).get("workercount", 1)
    items[:] = _dealt(items, worker_count)


def pytest_collection_finish() -> None:
    """Have the collector of garbage pass over what was there before the first test: some tests ask for it."""
    gc.collect()
    gc.freeze()


def _dealt(items: list[pytest.Item], worker_count: int) -> list[pytest.Item]:
    """Each worker is given an equal stretch of all items to begin with: first its share of the long ones."""
    long = [item for item in items if item.get_closest_marker("long") is not None]
    others = [item for item in items if item.get_closest_marker("long") is None]
    ends = [len(others) * number // worker_count for number in range(worker_count + 1)]
    hands = [[*long[n::worker_count], *others[ends[n] : ends[n + 1]]] for n in range(worker_count)]
    return [item for hand in hands for item in hand]
