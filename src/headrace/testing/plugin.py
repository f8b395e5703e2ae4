"""The pytest plugin. It is loaded into every test run where Headrace is installed, so it imports nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.broker import Broker


@pytest.fixture
def headrace_broker() -> Iterator[Broker]:
    """A fresh Kafka broker, gone after the test; `headrace_broker.bootstrap` is its address."""
    from headrace.broker import Broker  # noqa: PLC0415  # loaded only by tests that use it

    with Broker() as broker:
        yield broker
