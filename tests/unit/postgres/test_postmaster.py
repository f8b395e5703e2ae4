"""What a server's own file says, also when it is not whole, and whose process that is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headrace.postgres import postmaster
from headrace.postgres.postmaster import Postmaster

WHOLE = "4711\n/data\n1763340000\n5432\n/run\n127.0.0.1\n   123   4\n{}\n"


@pytest.mark.parametrize(
    ("status", "is_ready"), [("ready   ", True), ("starting", False), ("stopping", False)]
)
def test_a_server_is_ready_when_its_file_says_so(status: str, is_ready: bool) -> None:
    assert postmaster.parse(WHOLE.format(status)) == Postmaster(pid=4711, is_ready=is_ready)


@pytest.mark.parametrize("text", ["", "\n", "47x\n"])
def test_a_file_that_is_still_being_written_says_nothing(text: str) -> None:
    assert postmaster.parse(text) is None


def test_a_file_without_a_status_is_of_a_server_that_is_not_ready() -> None:
    assert postmaster.parse("-12\n/data\n") == Postmaster(pid=12, is_ready=False)


def test_another_process_of_the_same_number_is_not_the_server(tmp_path: Path) -> None:
    assert not postmaster.is_running(os.getpid(), tmp_path)


def test_a_process_that_is_gone_is_not_the_server(tmp_path: Path) -> None:
    assert not postmaster.is_running(2**22 + 1, tmp_path)
