from __future__ import annotations

import errno
from pathlib import Path

import pytest

from headrace.log.disk import OpenRefused
from headrace.log.durable_file import make_directory_durably
from headrace.log.open_files import OpenFiles
from headrace.testing.disk import SimulatedDisk

DIRECTORY = Path("/data")


class Owner:
    def __init__(self, name: str, disk: SimulatedDisk, files: OpenFiles, *, is_dirty: bool = False) -> None:
        self.is_dirty = is_dirty
        self._disk = disk
        self._files = files
        self._file: int | None = files.open(self, DIRECTORY / name)

    @property
    def is_open(self) -> bool:
        return self._file is not None

    def close(self) -> None:
        assert self._file is not None
        self._disk.close(self._file)
        self._file = None
        self._files.closed(self)


@pytest.fixture
def disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    make_directory_durably(disk, DIRECTORY)
    return disk


def test_the_file_that_was_not_used_for_longest_makes_room(disk: SimulatedDisk) -> None:
    files = OpenFiles(disk, count_max=3)
    owners = [Owner(name, disk, files) for name in "abc"]
    files.used(owners[0])
    owners.append(Owner("d", disk, files))
    assert [owner.is_open for owner in owners] == [True, False, True, True]
    assert disk.open_file_count == 3


def test_a_file_that_waits_for_its_sync_stays_open_whatever_the_maximum(disk: SimulatedDisk) -> None:
    files = OpenFiles(disk, count_max=2)
    dirty = [Owner(name, disk, files, is_dirty=True) for name in "abc"]
    clean = Owner("d", disk, files)
    Owner("e", disk, files)
    assert all(owner.is_open for owner in dirty)
    assert not clean.is_open
    dirty[0].is_dirty = dirty[1].is_dirty = False
    Owner("f", disk, files)
    assert [owner.is_open for owner in dirty] == [False, False, True]
    assert disk.open_file_count == 2


def test_when_the_system_refuses_a_file_all_that_may_go_do_and_it_is_tried_again(
    disk: SimulatedDisk,
) -> None:
    files = OpenFiles(disk)
    owners = [Owner(name, disk, files, is_dirty=name == "b") for name in "abc"]
    disk.fail("open", errno.EMFILE)
    assert Owner("d", disk, files).is_open
    assert [owner.is_open for owner in owners] == [False, True, False]


def test_when_nothing_can_go_a_refusal_stands(disk: SimulatedDisk) -> None:
    files = OpenFiles(disk)
    Owner("a", disk, files, is_dirty=True)
    disk.fail("open", errno.EMFILE)
    with pytest.raises(OpenRefused):
        Owner("b", disk, files)


def test_closing_all_closes_what_was_not_synced_too(disk: SimulatedDisk) -> None:
    files = OpenFiles(disk)
    for name in "abc":
        Owner(name, disk, files, is_dirty=name == "b")
    files.close_all()
    assert disk.open_file_count == 0
