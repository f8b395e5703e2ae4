"""What the page can do, beside showing: kill a pipeline's driver, move a slider, and press a view's button.

A driver is killed with SIGKILL, which nothing can catch: this is how a machine that loses power looks to the
rest. Only the process that a pipeline's own status names is killed, and only while it is that process: a
number that the system has given to another one since is left alone. Whoever supervises the driver starts it
again; the console does not.

A slider writes a record that others read: see view.py. The record has the sliders that somebody has moved, by
this page or before it, and no others: where those stand by the view is only where the page draws them, and
whoever reads the record may have begun elsewhere. A button writes a record that says when it was pressed.

Safe to call from several threads.
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
from typing import TYPE_CHECKING, Final

from confluent_kafka import KafkaException, Producer

from headrace.console.pipelines import look
from headrace.console.view import is_number
from headrace.driver.status import broken_statuses
from headrace.errors import BrokerUnavailable, ConfigError
from headrace.logs import fields

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confluent_kafka import KafkaError, Message

    from headrace.config import ConsoleConfig
    from headrace.console.catalog import KafkaCatalog
    from headrace.console.view import View
    from headrace.driver.status import Status

DELIVERY_S_MAX: Final = 10.0

logger: Final = logging.getLogger("headrace.console.actions")


class Actions:
    """Acts on one data directory and one broker."""

    def __init__(
        self, config: ConsoleConfig, view: View, settings: Mapping[str, str | int | float | bool]
    ) -> None:
        self._data_dir = config.data_dir
        self._view = view
        self._settings = {"message.timeout.ms": int(DELIVERY_S_MAX * 1000), **settings}
        self._values: dict[str, float] = {}
        """Where sliders stand that somebody has moved; of the others only their readers know."""
        self._unread = {control.topic for control in view.controls}
        """Topics that have not told yet what was written before this start."""
        self._lock = threading.Lock()

    def recall(self, catalog: KafkaCatalog) -> dict[str, float]:
        """Where the sliders stand by what was written before this start, those that somebody has moved.

        Topics that are not there yet, and a broker that does not answer, say nothing: call it again while
        `is_recalled` is false. What was moved meanwhile stays.
        """
        found: dict[str, float] = {}
        for topic in tuple(self._unread):
            with contextlib.suppress(ConfigError, BrokerUnavailable):
                if catalog.read_all(topic, lambda message: found.update(self._said_by(message))):
                    self._unread.discard(topic)
        with self._lock:
            self._values = {**found, **self._values}
            return {name: self._values[name] for name in found}

    @property
    def is_recalled(self) -> bool:
        """Whether all that was written before this start is known."""
        return not self._unread

    def _said_by(self, message: Message) -> dict[str, float]:
        try:
            content = json.loads(message.value() or b"{}")
        except (ValueError, RecursionError):
            return {}
        values = content if isinstance(content, dict) else {}
        return {
            control.name: values[control.name]
            for control in self._view.controls
            if (control.topic, control.key.encode()) == (message.topic(), message.key())
            and is_number(values.get(control.name))
            and control.allows(values[control.name])
        }

    def kill(self, pipeline: str) -> int:
        """Kill the driver of a pipeline that runs, and return its process's number."""
        status = self._status(pipeline)
        if status.state not in {"starting", "running"} or not status.process.is_alive():
            raise ConfigError(f"{pipeline} does not run now ({status.state}): there is nothing to kill")
        if status.process.started_ticks is None:
            raise ConfigError(
                f"the driver of {pipeline} is not killed: this system does not tell when process "
                f"{status.process.pid} started, so it may be another one by now; kill it in a terminal"
            )
        try:
            status.process.kill()
        except ProcessLookupError as error:
            raise ConfigError(f"the driver of {pipeline} has just ended by itself") from error
        except PermissionError as error:
            raise ConfigError(f"the driver of {pipeline} is another user's: it can't be killed") from error
        logger.warning(
            "killed the driver of %s, process %d, as the page asked",
            pipeline,
            status.process.pid,
            extra=fields(pipeline=pipeline, pid=status.process.pid),
        )
        return status.process.pid

    def _status(self, pipeline: str) -> Status:
        statuses = look(self._data_dir) if self._data_dir else []
        for status in statuses:
            if status.name == pipeline:
                return status
        broken = broken_statuses(self._data_dir) if self._data_dir else []
        if path := next((each for each in broken if each.stem == pipeline), None):
            raise ConfigError(
                f"what is known of {pipeline} can't be read, so nothing is killed: look at {path}"
            )
        raise ConfigError(f"there is no pipeline {pipeline[:100]!r} here")

    def move(self, name: str, value: float) -> None:
        """Move a slider: write its record, and return when the broker has it."""
        control = next((each for each in self._view.controls if each.name == name), None)
        if control is None:
            raise ConfigError(f"there is no control {name[:100]!r}")
        if not control.allows(value):
            raise ConfigError(
                f"{control.label} can be {control.minimum:g} to {control.maximum:g}, not {value:g}"
            )
        with self._lock:
            moved = {**self._values, name: value}
            together = {
                each.name: moved[each.name]
                for each in self._view.controls
                if (each.topic, each.key) == (control.topic, control.key) and each.name in moved
            }
            self._write(control.topic, control.key, together)
            self._values[name] = value
        logger.info("moved %s to %g, as the page asked", name, value, extra=fields(control=name, value=value))

    def press(self, name: str, now_ms: int) -> None:
        """Press a button: write its record, and return when the broker has it."""
        button = next((each for each in self._view.buttons if each.name == name), None)
        if button is None:
            raise ConfigError(f"there is no button {name[:100]!r}")
        self._write(button.topic, button.key, {"pressed_ms": now_ms})
        logger.warning("pressed %s, as the page asked", name, extra=fields(button=name))

    def _write(self, topic: str, key: str, content: Mapping[str, float]) -> None:
        failures: list[KafkaError] = []

        def on_delivery(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failures.append(error)

        producer = Producer(self._settings)
        try:
            producer.produce(topic, json.dumps(content).encode(), key.encode(), on_delivery=on_delivery)
        except (KafkaException, BufferError) as error:
            raise BrokerUnavailable(f"{topic} could not be written: {error}") from error
        if producer.flush(DELIVERY_S_MAX + 1) or failures:
            reason = failures[0].str() if failures else "the broker does not answer"
            raise BrokerUnavailable(f"{topic} could not be written: {reason}")
