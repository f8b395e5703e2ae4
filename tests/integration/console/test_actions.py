"""What the page can do: to a real process, and to a real broker."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from headrace.console.actions import Actions
from headrace.console.catalog import KafkaCatalog
from headrace.console.feed import client_settings
from headrace.console.view import Button, Control, View
from headrace.driver.process import ProcessId
from headrace.driver.status import State, Status, status_dir, write_status
from headrace.errors import BrokerUnavailable, ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from confluent_kafka import Message
    from tests.integration.console.conftest import Topics

    from headrace.config import ConsoleConfig


def control(name: str, **fields: Any) -> Control:
    whole: dict[str, Any] = {
        "label": name,
        "minimum": 0,
        "maximum": 100,
        "step": 1,
        "value": 10,
        "topic": "control",
        "key": "world",
    }
    return Control(name=name, **{**whole, **fields})


VIEW = View(
    title="x",
    input="transactions",
    alerts="fraud-alerts",
    controls=(control("rate"), control("late"), control("limit", key="rules")),
    buttons=(Button(name="mistake", label="Delete", question="Really?", topic="control", key="mistake"),),
)


@pytest.fixture
def victim() -> Iterator[subprocess.Popen[bytes]]:
    """A process that does nothing for as long as it is let."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def write(data_dir: Path, process: ProcessId, state: State = "running") -> None:
    now = datetime.now(UTC)
    write_status(
        data_dir,
        Status(
            name="alerts",
            state=state,
            process=process,
            started_at=now,
            updated_at=now,
            mode="micro-batch",
            bootstrap="b",
            reads=("transactions",),
            writes="fraud-alerts",
        ),
    )


def test_a_running_driver_is_killed_with_a_signal_that_nothing_catches(
    tmp_path: Path, nowhere: ConsoleConfig, victim: subprocess.Popen[bytes]
) -> None:
    actions = Actions(replace(nowhere, data_dir=tmp_path), VIEW, client_settings(nowhere))
    with pytest.raises(ConfigError, match="there is no pipeline 'alerts' here"):
        actions.kill("alerts")
    write(tmp_path, ProcessId.of(victim.pid), "stopped")
    with pytest.raises(ConfigError, match="does not run now"):
        actions.kill("alerts")
    another_start = replace(ProcessId.of(victim.pid), started_ticks=1)
    write(tmp_path, another_start)
    with pytest.raises(ConfigError, match="does not run now"):
        actions.kill("alerts")
    assert victim.poll() is None
    write(tmp_path, ProcessId.of(victim.pid))
    assert actions.kill("alerts") == victim.pid
    assert victim.wait(30) == -signal.SIGKILL
    with pytest.raises(ConfigError, match="does not run now"):
        actions.kill("alerts")


def test_a_process_that_can_t_be_told_from_a_later_one_or_is_not_named_is_not_killed(
    tmp_path: Path, nowhere: ConsoleConfig, victim: subprocess.Popen[bytes]
) -> None:
    actions = Actions(replace(nowhere, data_dir=tmp_path), VIEW, client_settings(nowhere))
    write(tmp_path, ProcessId(victim.pid))
    with pytest.raises(ConfigError, match="does not tell when process"):
        actions.kill("alerts")
    path = status_dir(tmp_path) / "alerts.json"
    for pid in (-1, 0, str(victim.pid)):
        process = {"pid": pid, "started_ticks": None}
        path.write_text(json.dumps({**json.loads(path.read_text()), "process": process}))
        with pytest.raises(ConfigError, match="can't be read, so nothing is killed"):
            actions.kill("alerts")
    assert victim.poll() is None


@pytest.mark.parametrize("has_descriptors", [True, False])
def test_a_process_is_killed_and_one_that_has_ended_is_not_found(
    victim: subprocess.Popen[bytes], has_descriptors: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_descriptors:
        monkeypatch.delattr("os.pidfd_open", raising=False)
    process = ProcessId.of(victim.pid)
    with pytest.raises(ProcessLookupError):
        replace(process, started_ticks=1).kill()
    assert victim.poll() is None
    process.kill()
    assert victim.wait(30) == -signal.SIGKILL
    with pytest.raises(ProcessLookupError):
        process.kill()


def test_a_button_writes_when_it_was_pressed(topics: Topics, config: ConsoleConfig) -> None:
    topics.create("control")
    settings = client_settings(config)
    catalog, actions = KafkaCatalog(settings), Actions(config, VIEW, settings)
    with pytest.raises(ConfigError, match="there is no button 'other'"):
        actions.press("other", 1)
    actions.press("mistake", 1_794_772_701_738)
    found: list[tuple[bytes | None, Any]] = []

    def take(message: Message) -> None:
        found.append((message.key(), json.loads(message.value() or b"")))

    assert catalog.read_all("control", take)
    assert found == [(b"mistake", {"pressed_ms": 1_794_772_701_738})]


def test_a_slider_writes_those_moved_that_share_its_record_and_is_found_again_after_a_restart(
    topics: Topics, config: ConsoleConfig
) -> None:
    topics.create("control")
    settings = client_settings(config)
    catalog, actions = KafkaCatalog(settings), Actions(config, VIEW, settings)
    assert actions.recall(catalog) == {}
    actions.move("rate", 50)
    actions.move("late", 2.5)
    actions.move("limit", 7)
    topics.send("control", b"no json", b"[]", b'{"rate": 5000}', b'{"rate": "x"}')

    written: list[tuple[bytes | None, Any]] = []

    def take(message: Message) -> None:
        if message.key() is not None:
            written.append((message.key(), json.loads(message.value() or b"")))

    assert catalog.read_all("control", take)
    assert written == [
        (b"world", {"rate": 50}),
        (b"world", {"rate": 50, "late": 2.5}),
        (b"rules", {"limit": 7}),
    ]
    restarted = Actions(config, VIEW, settings)
    restarted.move("late", 3)
    assert restarted.recall(catalog) == {"rate": 50, "late": 3, "limit": 7}
    assert restarted.is_recalled
    with pytest.raises(ConfigError, match="rate can be 0 to 100, not 101"):
        actions.move("rate", 101)
    with pytest.raises(ConfigError, match="there is no control 'speed'"):
        actions.move("speed", 1)


def test_a_slider_that_cant_be_written_says_so_and_stays(nowhere: ConsoleConfig) -> None:
    settings = {**client_settings(nowhere), "message.timeout.ms": 100}
    actions = Actions(nowhere, VIEW, settings)
    with pytest.raises(BrokerUnavailable, match="control could not be written"):
        actions.move("rate", 50)
