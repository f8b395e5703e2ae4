"""What is recalled of the sliders, from a broker that may not be there yet."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from headrace.config import ConsoleConfig
from headrace.console.actions import Actions
from headrace.console.view import Control, View
from headrace.errors import BrokerUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.console.catalog import KafkaCatalog

RATE = Control(name="rate", label="r", minimum=0, maximum=100, step=1, value=10, topic="control", key="world")
VIEW = View(title="x", input="i", alerts="a", controls=(RATE,))


@dataclass
class Record:
    """One record of the control topic."""

    content: bytes

    def topic(self) -> str:
        return "control"

    def key(self) -> bytes:
        return b"world"

    def value(self) -> bytes:
        return self.content


@dataclass
class Broker:
    """Answers with one record a call; with none left, it is not there."""

    records: list[bytes] = field(default_factory=list)

    def read_all(self, _topic: str, take: Callable[[Any], None]) -> bool:
        if not self.records:
            raise BrokerUnavailable("nobody is there")
        take(Record(self.records.pop(0)))
        return True


def recall(actions: Actions, *records: bytes) -> dict[str, float]:
    return actions.recall(cast("KafkaCatalog", Broker(list(records))))


def test_a_broker_that_is_not_there_is_asked_again() -> None:
    actions = Actions(ConsoleConfig(), VIEW, {})
    assert recall(actions) == {}
    assert not actions.is_recalled
    assert recall(actions, b'{"rate": 50}') == {"rate": 50}
    assert actions.is_recalled


def test_a_number_that_no_slider_can_have_is_passed_over() -> None:
    for value in (10**400, True, "5", None, float("nan"), 101):
        actions = Actions(ConsoleConfig(), VIEW, {})
        assert recall(actions, json.dumps({"rate": value}).encode()) == {}
        assert actions.is_recalled
