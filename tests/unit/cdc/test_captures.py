"""Captures as they are written down, and what is known of one that runs or has died."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from headrace.cdc.captures import delete_files, load_capture, names_of, save_capture
from headrace.cdc.pause import Pause
from headrace.cdc.slot import Slot, WalStatus
from headrace.cdc.state import CaptureState, Phase, TableSnapshot
from headrace.cdc.status import StatusFile, read_status
from headrace.config import CaptureConfig
from headrace.driver.process import ProcessId
from headrace.errors import ConfigError


def config_in(directory: Path) -> CaptureConfig:
    return CaptureConfig(
        name="shop",
        dsn="host=db password=secret",
        data_dir=directory,
        include_tables=("public.*",),
        mask_columns={"public.users.email": "***"},
    )


def test_a_capture_is_read_back_as_it_was_written_and_others_can_not_read_it(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    save_capture(config)
    assert load_capture(tmp_path, "shop") == config
    assert names_of(tmp_path) == ["shop"]
    assert (config.directory / "capture.json").stat().st_mode & 0o777 == 0o600
    with pytest.raises(ConfigError, match="there is a capture shop already"):
        save_capture(config)
    delete_files(config)
    assert names_of(tmp_path) == []


def test_two_captures_of_one_broker_can_not_have_the_same_topics(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    save_capture(config)
    with pytest.raises(ConfigError, match=r"capture shop publishes to shop\.\* already"):
        save_capture(replace(config, name="b"))
    save_capture(replace(config, name="c", bootstrap="other:9092"))
    save_capture(replace(config, name="d", prefix="d"))
    assert names_of(tmp_path) == ["c", "d", "shop"]


def test_what_was_not_written_down_or_can_not_be_read_is_named(tmp_path: Path) -> None:
    save_capture(config_in(tmp_path))
    with pytest.raises(ConfigError, match=r"no capture other in .* \(there is shop\)"):
        load_capture(tmp_path, "other")
    file = tmp_path / "captures" / "shop" / "capture.json"
    told = json.loads(file.read_text())
    file.write_text(json.dumps({**told, "unheard_of": 1}))
    with pytest.raises(ConfigError, match="is of another version"):
        load_capture(tmp_path, "shop")
    file.write_text("{")
    with pytest.raises(ConfigError, match="can't be read"):
        load_capture(tmp_path, "shop")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": "a b"}, "can't be a capture's name"),
        ({"slot": "A"}, "can't be a slot's name"),
        ({"snapshot": "sometimes"}, "is none of initial, never, only"),
        ({"heartbeat_s": -1.0}, "heartbeat_s must be 0 or more"),
        ({"chunk_rows_max": 0}, "chunk_rows_max must be at least 1"),
        ({"dsn": ""}, "dsn is empty"),
    ],
)
def test_settings_that_can_not_be_are_refused(tmp_path: Path, change: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        replace(config_in(tmp_path), **change)  # type: ignore[arg-type]


def test_what_a_capture_does_is_written_down_and_a_dead_one_is_recognised(tmp_path: Path) -> None:
    assert read_status(tmp_path).state == "new"
    status = StatusFile("shop", tmp_path)
    table = TableSnapshot(schema="public", table="orders", row_count=5, estimate=10)
    status.streaming(
        CaptureState(slot="s", system="1", phase=Phase.STREAMING, lsn=255, event_count=7, tables=(table,))
    )
    told = read_status(tmp_path)
    assert (told.state, told.lsn, told.event_count) == ("streaming", "0/FF", 7)
    assert told.tables == ({"table": "public.orders", "rows": 5, "estimate": 10},)
    assert told.seen_now() is told
    dead = replace(told, process=ProcessId(2**22 + 1, 1)).seen_now()
    assert dead.state == "crashed"
    assert "was killed or crashed" in (dead.last_error or "")
    status.ended("failed", ValueError("no more"))
    assert read_status(tmp_path).last_error == "no more"


def test_a_second_process_leaves_the_status_of_the_first_alone(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as first:
        process = ProcessId.of(first.pid)
        running = asdict(replace(read_status(tmp_path), state="streaming", process=process))
        (tmp_path / "status.json").write_text(json.dumps(running))
        second = StatusFile("shop", tmp_path)
        second.paused()
        second.ended("failed", ValueError("runs already"))
        assert read_status(tmp_path).state == "streaming"
        second.locked()
        second.ended("failed", ValueError("no more"))
        assert read_status(tmp_path).last_error == "no more"
        (tmp_path / "status.json").write_text(json.dumps(running))
        first.kill()
        first.wait()
    second.unlocked()
    second.ended("stopped")
    assert read_status(tmp_path).state == "stopped"


def test_a_pause_holds_until_it_is_taken_back(tmp_path: Path) -> None:
    pause = Pause(tmp_path / "shop")
    assert (pause.is_set(), pause.set(), pause.set(), pause.is_set()) == (False, True, False, True)
    assert (pause.clear(), pause.clear(), pause.is_set()) == (True, False, False)


def test_of_a_capture_that_does_not_run_it_is_told_what_is_kept_for_it_and_what_threatens(
    tmp_path: Path,
) -> None:
    status = replace(read_status(tmp_path), name="shop", state="stopped", lsn="0/64", kept_bytes=1)
    slot = Slot(
        name="s",
        plugin="pgoutput",
        database="shop",
        current_database="shop",
        active_pid=None,
        wal_status=WalStatus.RESERVED,
        restart_lsn=100,
        # More than the file says is published: it is written now and then.
        confirmed_lsn=150,
        end_lsn=1000,
        keep_bytes_max=None,
    )
    told = status.with_slot("s", slot)
    assert (told.lag_bytes, told.kept_bytes, told.last_error) == (850, 900, None)
    for trouble, words in (
        (replace(slot, keep_bytes_max=1000), "the slot is lost"),
        (replace(slot, wal_status=WalStatus.LOST), "max_slot_wal_keep_size"),
        (None, "is gone"),
    ):
        assert words in (status.with_slot("s", trouble).last_error or "")
    assert replace(status, lsn=None).with_slot("s", None).last_error is None
    assert replace(status, last_error="no more").with_slot("s", None).last_error == "no more"
