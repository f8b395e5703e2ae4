from __future__ import annotations

import pytest

from headrace.testing.disk import SimulatedDisk
from headrace.testing.queues import QueueBench


@pytest.fixture(params=["memory", "disk"])
def bench(request: pytest.FixtureRequest) -> QueueBench:
    """The same logic without a journal, and on one."""
    return QueueBench(disk=SimulatedDisk() if request.param == "disk" else None)


@pytest.fixture
def stored() -> QueueBench:
    """Queues on a disk that loses what was not synced."""
    return QueueBench(disk=SimulatedDisk())
