"""What is told of a capture that does not run: the database is asked, and not what was known last."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.cdc.capture import Capture
from headrace.cdc.captures import save_capture
from headrace.cdc.state import CaptureState
from headrace.cdc.status import CaptureStatus, StatusFile
from headrace.cli.capture_runner import statuses
from headrace.testing.waiting import eventually

if TYPE_CHECKING:
    from tests.integration.cdc.conftest import World

    from headrace.config import CaptureConfig


class UntilStreaming(StatusFile):
    """Stops its capture once changes are streamed."""

    capture: Capture

    def streaming(self, state: CaptureState) -> None:
        super().streaming(state)
        self.capture.stop()


def has_run(config: CaptureConfig) -> None:
    progress = UntilStreaming(config.name, config.directory)
    progress.capture = Capture(config, progress)
    progress.capture.keep_running()
    progress.ended("stopped")


def status_of(world: World) -> CaptureStatus:
    [status] = statuses(world.config.data_dir, None)
    return status


def test_what_the_database_keeps_for_a_capture_that_has_stopped_is_asked_for(world: World) -> None:
    world.database.execute("CREATE TABLE orders (id int PRIMARY KEY)")
    save_capture(world.config)
    assert status_of(world).state == "new"
    has_run(world.config)
    before = status_of(world)
    world.database.execute("CREATE TABLE noise AS SELECT n FROM generate_series(1, 10000) n")
    assert before.kept_bytes is not None
    assert before.last_error is None
    much = before.kept_bytes + 100_000
    eventually(lambda: (status_of(world).kept_bytes or 0) > much, "more that is kept")

    world.drop_slot()
    lost = status_of(world)
    assert (lost.state, lost.kept_bytes) == ("stopped", None)
    assert "its replication slot" in (lost.last_error or "")


def test_what_is_out_of_date_is_not_told_where_the_database_does_not_answer(world: World) -> None:
    save_capture(replace(world.config, dsn="host=127.0.0.1 port=1 dbname=shop"))
    status = StatusFile("shop", world.config.directory)
    status._status = replace(status._status, lsn="0/FF", lag_bytes=7, kept_bytes=7)
    status.ended("stopped")
    told = status_of(world)
    assert (told.state, told.lag_bytes, told.kept_bytes) == ("stopped", None, None)
