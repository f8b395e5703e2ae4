"""Failpoints: named places where a test can stop, fail or delay the broker."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace.config import LogConfig
from headrace.errors import ConfigError, StorageError, UsageError
from headrace.failpoints import Failpoint, arm_all, disarm, draw, hit, is_armed
from headrace.log.batch import encode_batch
from headrace.log.partition import PartitionLog
from headrace.log.record import Record
from headrace.log.topic_settings import TopicSettings
from headrace.testing.clock import ManualClock
from headrace.testing.failpoints import FAILPOINTS, failpoint, kill_at
from headrace.testing.partition import open_log

CALL = re.compile(r'\bhit\("([^"]+)"\)')


def test_every_place_in_the_code_is_listed_and_every_listed_place_is_in_the_code() -> None:
    root = Path(headrace.__file__).parent
    files = [path for path in root.rglob("*.py") if path.name != "failpoints.py"]
    found = {name for path in files for name in CALL.findall(path.read_text())}
    assert found == set(FAILPOINTS)


def test_nothing_happens_at_a_place_that_is_not_armed() -> None:
    hit("log.sync")
    with failpoint("log.append", error=errno.EIO):
        hit("log.sync")


def test_an_error_happens_once_after_so_many_good_hits() -> None:
    with failpoint("log.sync", error=errno.ENOSPC, after=2):
        assert not is_armed("log.sync")
        hit("log.sync")
        hit("log.sync")
        assert is_armed("log.sync")
        with pytest.raises(OSError, match="No space left on device") as raised:
            hit("log.sync")
        assert raised.value.errno == errno.ENOSPC
        hit("log.sync")
    hit("log.sync")


def test_what_is_to_happen_can_be_drawn_for_another_process_to_do() -> None:
    with failpoint("pipeline.task.begun", error=errno.EIO, after=1):
        assert draw("pipeline.task.begun") is None
        drawn = draw("pipeline.task.begun")
        assert drawn is not None
        assert drawn.error == errno.EIO
        assert draw("pipeline.task.begun") is None


def test_a_kill_takes_its_victims_along() -> None:
    program = """
import os, time
from headrace.failpoints import Failpoint, arm, hit
child = os.fork()
if child == 0:
    time.sleep(60)
    os._exit(0)
arm([Failpoint("pipeline.task.begun", "kill", victims=(child,))])
print(child, flush=True)
hit("pipeline.task.begun")
"""
    # Its output ends only when the child is gone as well, which holds the other end.
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    assert done.returncode == -9


def test_a_delay_happens_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    with failpoint("kafka.answered", delay_ms=20, after=1):
        for _ in range(3):
            hit("kafka.answered")
        assert not is_armed("kafka.answered")
    hit("kafka.answered")
    assert slept == [0.02, 0.02]


def test_a_process_kills_itself_at_the_place_that_its_environment_names() -> None:
    program = """
from headrace.config import failpoints_to_arm
from headrace.failpoints import arm_all, hit
arm_all(failpoints_to_arm())
hit("log.sync")
print("once", flush=True)
hit("log.sync")
print("twice")
"""
    environment = {**os.environ, **kill_at("log.sync", after=1)}
    arguments = [sys.executable, "-c", program]
    done = subprocess.run(arguments, env=environment, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (-9, "once\n")


def test_a_setting_names_several_places() -> None:
    arm_all("log.sync=error:EIO@3; log.append=delay:5;")
    assert is_armed("log.sync") is False
    disarm("log.sync")
    disarm("log.append")
    assert Failpoint.parse("log.sync=error:ENOSPC@7") == Failpoint(
        "log.sync", "error", hits_left=7, error=errno.ENOSPC
    )
    assert Failpoint.parse("log.roll=kill") == Failpoint("log.roll", "kill")


@pytest.mark.parametrize(
    "spec",
    [
        "nowhere=kill",
        "log.sync",
        "log.sync=panic",
        "log.sync=kill@0",
        "log.sync=kill:9",
        "log.sync=error:NOSUCH",
        "log.sync=delay:soon",
        "kafka.answered=error:EIO",
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(spec: str) -> None:
    with pytest.raises(ConfigError):
        arm_all(spec)


@pytest.mark.parametrize("options", [{}, {"error": errno.EIO, "delay_ms": 5}])
def test_a_failpoint_does_one_thing(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="either"), failpoint("log.sync", **options):
        pass


def test_a_failed_sync_stops_the_log_and_half_a_batch_is_cut_off_at_the_next_start(tmp_path: Path) -> None:
    batch = encode_batch([Record(timestamp_ms=1, key=None, value=b"x" * 100)])
    for place in ("log.sync", "log.append.half"):
        log = open_log(tmp_path / place, TopicSettings.of_broker(LogConfig()), ManualClock())
        log.append(batch, size_bytes_max=10_000)
        log.sync()
        with failpoint(place, error=errno.EIO), pytest.raises(StorageError):
            append_and_sync(log, batch)
        with pytest.raises(StorageError, match="no writes are taken after a failure"):
            log.append(batch, size_bytes_max=10_000)
        log.close()
        again = open_log(tmp_path / place, TopicSettings.of_broker(LogConfig()), ManualClock())
        assert (again.end_offset, again.cut is not None) == ((1, True) if "half" in place else (2, False))
        again.close()


def append_and_sync(log: PartitionLog, batch: bytes) -> None:
    log.append(batch, size_bytes_max=10_000)
    log.sync()
