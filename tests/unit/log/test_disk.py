"""What the log expects of a disk, of the machine's own and of the simulated one."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from headrace.log.disk import BUFFERS_PER_WRITE_MAX, Disk, OpenRefused, SystemDisk
from headrace.log.durable_file import make_directory_durably, read_whole, write_durably
from headrace.testing.disk import PowerLoss, SimulatedDisk

DIRECTORY = Path("/data")


def never_waiting() -> tuple[socket.socket, socket.socket]:
    """Two ends of a connection, of which the first never waits."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    return ours, theirs


class DiskContract:
    @pytest.fixture
    def directory(self, tmp_path: Path) -> Path:
        return tmp_path

    def test_a_file_is_made_when_it_is_missing_and_grows_at_its_end(
        self, disk: Disk, directory: Path
    ) -> None:
        for text in (b"one ", b"two "):
            file = disk.open(directory / "file")
            disk.append(file, [text, memoryview(b"and "), bytearray(text)])
            disk.close(file)
        assert read_whole(disk, directory / "file") == b"one and one two and two "

    def test_reading_gives_less_only_at_the_end(self, disk: Disk, directory: Path) -> None:
        file = disk.open(directory / "file")
        disk.append(file, [b"0123456789"])
        assert disk.read(file, 3, 4) == b"3456"
        assert disk.read(file, 8, 4) == b"89"
        assert disk.read(file, 20, 4) == b""
        assert disk.size_bytes(file) == 10
        disk.close(file)

    def test_what_a_socket_takes_at_once_is_sent_from_the_file(self, disk: Disk, directory: Path) -> None:
        file = disk.open(directory / "file")
        disk.append(file, [b"0123456789"])
        ours, theirs = never_waiting()
        with ours, theirs:
            assert disk.send(file, 3, 4, ours.fileno()) == 4
            assert theirs.recv(100) == b"3456"
            assert disk.send(file, 8, 4, ours.fileno()) == 2
            assert theirs.recv(100) == b"89"
        disk.close(file)

    def test_a_second_handle_outlives_the_first_and_the_name(self, disk: Disk, directory: Path) -> None:
        file = disk.open(directory / "file")
        disk.append(file, [b"0123456789"])
        second = disk.duplicate(file)
        disk.close(file)
        disk.unlink(directory / "file")
        assert disk.read(second, 3, 4) == b"3456"
        disk.close(second)

    def test_a_socket_that_takes_no_more_ends_the_sending(self, disk: Disk, directory: Path) -> None:
        content = bytes(range(256)) * 40_000
        file = disk.open(directory / "file")
        disk.append(file, [content])
        ours, theirs = never_waiting()
        with ours, theirs:
            sent_bytes = disk.send(file, 0, len(content), ours.fileno())
            assert 0 < sent_bytes < len(content)
            assert disk.send(file, sent_bytes, 1, ours.fileno()) == 0
            received = b""
            while len(received) < sent_bytes:
                received += theirs.recv(sent_bytes)
            assert received == content[:sent_bytes]
        disk.close(file)

    def test_a_socket_that_nobody_reads_any_more_takes_nothing(self, disk: Disk, directory: Path) -> None:
        file = disk.open(directory / "file")
        disk.append(file, [b"0123456789"])
        ours, theirs = never_waiting()
        with ours:
            theirs.close()
            assert disk.send(file, 0, 10, ours.fileno()) == 0
        disk.close(file)

    def test_more_buffers_than_one_call_takes_are_all_written(self, disk: Disk, directory: Path) -> None:
        file = disk.open(directory / "file")
        disk.append(file, [bytes([n % 256]) for n in range(BUFFERS_PER_WRITE_MAX + 1)])
        assert disk.size_bytes(file) == BUFFERS_PER_WRITE_MAX + 1
        disk.close(file)

    def test_a_cut_file_goes_on_from_the_cut(self, disk: Disk, directory: Path) -> None:
        file = disk.open(directory / "file")
        disk.append(file, [b"0123456789"])
        disk.truncate(file, 4)
        disk.append(file, [b"x"])
        disk.sync_file(file)
        assert disk.read(file, 0, 100) == b"0123x"
        disk.close(file)

    def test_bytes_are_written_over_others_and_appending_goes_on_at_the_end(
        self, disk: Disk, directory: Path
    ) -> None:
        file = disk.open(directory / "file")
        disk.append(file, [b"0123456789"])
        disk.rewrite(file, 3, memoryview(b"abc"))
        disk.append(file, [b"x"])
        assert disk.read(file, 0, 100) == b"012abc6789x"
        disk.close(file)

    def test_names_are_sorted_and_follow_renames_and_removals(self, disk: Disk, directory: Path) -> None:
        for name in ("b", "a", "c"):
            disk.close(disk.open(directory / name))
        disk.rename(directory / "c", directory / "a")
        disk.unlink(directory / "b")
        disk.sync_directory(directory)
        assert disk.names(directory) == ["a"]
        assert disk.names(directory / "missing") == []

    def test_directories_are_made_once_and_removed_when_empty(self, disk: Disk, directory: Path) -> None:
        disk.make_directory(directory / "inner")
        disk.make_directory(directory / "inner")
        assert disk.names(directory) == ["inner"]
        with pytest.raises(FileNotFoundError):
            disk.make_directory(directory / "missing" / "inner")
        disk.close(disk.open(directory / "inner" / "file"))
        with pytest.raises(OSError, match="not empty"):
            disk.remove_directory(directory / "inner")
        disk.unlink(directory / "inner" / "file")
        disk.remove_directory(directory / "inner")
        assert disk.names(directory) == []

    def test_a_lock_has_one_holder_and_goes_with_the_file(self, disk: Disk, directory: Path) -> None:
        first, second = disk.open(directory / "lock"), disk.open(directory / "lock")
        assert disk.lock(first)
        assert not disk.lock(second)
        disk.close(first)
        assert disk.lock(second)
        disk.close(second)

    def test_a_small_file_is_replaced_as_a_whole(self, disk: Disk, directory: Path) -> None:
        make_directory_durably(disk, directory / "x" / "y")
        for content in (b"a longer content", b"short"):
            write_durably(disk, directory / "x" / "y" / "file", content)
        assert read_whole(disk, directory / "x" / "y" / "file") == b"short"
        assert disk.names(directory / "x" / "y") == ["file"]


class TestSystemDisk(DiskContract):
    @pytest.fixture
    def disk(self) -> SystemDisk:
        return SystemDisk()

    def test_a_write_that_is_taken_in_pieces_is_finished(
        self, disk: SystemDisk, directory: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write = os.write
        monkeypatch.setattr(os, "writev", lambda file, buffers: write(file, bytes(buffers[0])[:3]))
        monkeypatch.setattr(os, "write", lambda file, data: write(file, bytes(data)[:2]))
        file = disk.open(directory / "file")
        disk.append(file, [b"01234", b"56789"])
        disk.close(file)
        assert read_whole(disk, directory / "file") == b"0123456789"

    def test_a_read_that_is_answered_in_pieces_is_finished(
        self, disk: SystemDisk, directory: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pread = os.pread
        file = disk.open(directory / "file")
        disk.append(file, [b"0123456789"])
        monkeypatch.setattr(os, "pread", lambda file, size, position: pread(file, min(size, 3), position))
        assert disk.read(file, 1, 8) == b"12345678"
        assert disk.read(file, 5, 100) == b"56789"
        disk.close(file)

    def test_a_rewrite_that_is_taken_in_pieces_is_finished(
        self, disk: SystemDisk, directory: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pwrite = os.pwrite
        file = disk.open(directory / "file")
        disk.append(file, [b"0123456789"])
        monkeypatch.setattr(
            os, "pwrite", lambda file, data, position: pwrite(file, bytes(data)[:2], position)
        )
        disk.rewrite(file, 1, b"abcde")
        assert disk.read(file, 0, 100) == b"0abcde6789"
        disk.close(file)

    @pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
    def test_an_open_for_which_there_is_no_room_is_told_from_other_errors(
        self, disk: SystemDisk, directory: Path, monkeypatch: pytest.MonkeyPatch, error: int
    ) -> None:
        def refuse(path: Path, *_: object) -> int:
            raise OSError(error, os.strerror(error), str(path))

        monkeypatch.setattr(os, "open", refuse)
        monkeypatch.setattr(os, "listdir", refuse)
        for call in (disk.open, disk.sync_directory, disk.names):
            with pytest.raises(OpenRefused, match=os.strerror(error)):
                call(directory)

    def test_a_file_that_may_not_be_opened_is_another_error(self, disk: SystemDisk, directory: Path) -> None:
        with pytest.raises(IsADirectoryError):
            disk.open(directory)
        with pytest.raises(NotADirectoryError):
            disk.sync_directory(Path("/dev/null"))


class TestSimulatedDisk(DiskContract):
    @pytest.fixture
    def disk(self, directory: Path) -> SimulatedDisk:
        disk = SimulatedDisk()
        make_directory_durably(disk, directory)
        return disk

    @pytest.fixture
    def directory(self) -> Path:
        return DIRECTORY

    def _content_after_crashes(self, write: Callable[[], SimulatedDisk]) -> set[bytes]:
        contents = set()
        for seed in range(100):
            disk = write()
            disk.crash(Random(seed))
            contents.add(disk.content(DIRECTORY / "file") if "file" in disk.names(DIRECTORY) else b"missing")
        return contents

    def test_what_was_not_synced_may_be_lost_or_torn_but_what_was_synced_is_there(self) -> None:
        def write() -> SimulatedDisk:
            disk = SimulatedDisk()
            make_directory_durably(disk, DIRECTORY)
            file = disk.open(DIRECTORY / "file")
            disk.append(file, [b"kept"])
            disk.sync_file(file)
            disk.sync_directory(DIRECTORY)
            disk.append(file, [b"perhaps"])
            return disk

        contents = self._content_after_crashes(write)
        assert all(content.startswith(b"kept") for content in contents)
        assert {b"kept", b"keptperhaps", b"keptper"} <= contents
        assert any(b"\x00" in content for content in contents)

    @pytest.mark.parametrize("again", [False, True])
    def test_what_a_failed_sync_has_marked_clean_is_saved_only_when_it_is_written_again(
        self, again: bool
    ) -> None:
        def write() -> SimulatedDisk:
            disk = SimulatedDisk()
            make_directory_durably(disk, DIRECTORY)
            file = disk.open(DIRECTORY / "file")
            disk.sync_directory(DIRECTORY)
            disk.append(file, [b"kept"])
            disk.sync_file(file)
            disk.append(file, [b"lost"])
            disk.fail("sync_file")
            with pytest.raises(OSError, match=os.strerror(errno.EIO)):
                disk.sync_file(file)
            assert disk.read(file, 0, 100) == b"keptlost"
            if again:
                disk.rewrite(file, 4, b"lost")
            disk.append(file, [b"more"])
            disk.sync_file(file)
            return disk

        expected = b"keptlostmore" if again else b"kept\x00\x00\x00\x00more"
        assert self._content_after_crashes(write) == {expected}

    def test_a_crash_during_a_rewrite_of_the_same_bytes_changes_nothing(self) -> None:
        def write() -> SimulatedDisk:
            disk = SimulatedDisk()
            make_directory_durably(disk, DIRECTORY)
            write_durably(disk, DIRECTORY / "file", b"0123456789")
            disk.rewrite(disk.open(DIRECTORY / "file"), 2, b"234567")
            return disk

        assert self._content_after_crashes(write) == {b"0123456789"}

    def test_a_name_that_was_not_synced_may_be_lost_with_all_that_was_synced_under_it(self) -> None:
        def write() -> SimulatedDisk:
            disk = SimulatedDisk()
            make_directory_durably(disk, DIRECTORY)
            file = disk.open(DIRECTORY / "file")
            disk.append(file, [b"content"])
            disk.sync_file(file)
            return disk

        assert self._content_after_crashes(write) == {b"content", b"missing"}

    def test_a_replaced_file_is_the_old_or_the_new_one(self) -> None:
        def write() -> SimulatedDisk:
            disk = SimulatedDisk()
            make_directory_durably(disk, DIRECTORY)
            write_durably(disk, DIRECTORY / "file", b"old")
            disk.lose_power_after(5)
            with pytest.raises(PowerLoss):
                write_durably(disk, DIRECTORY / "file", b"new")
            return disk

        assert self._content_after_crashes(write) == {b"old", b"new"}

    def test_the_power_goes_in_the_middle_of_a_write(self, disk: SimulatedDisk, directory: Path) -> None:
        file = disk.open(directory / "file")
        disk.lose_power_after(0)
        with pytest.raises(PowerLoss):
            disk.append(file, [b"0123456789"])
        assert disk.content(directory / "file") == b"01234"

    def test_after_a_crash_no_file_is_open(self, disk: SimulatedDisk, directory: Path) -> None:
        file = disk.open(directory / "file")
        disk.crash(Random(0))
        with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
            disk.append(file, [b"x"])

    def test_a_killed_process_leaves_what_it_wrote(self, disk: SimulatedDisk, directory: Path) -> None:
        file = disk.open(directory / "file")
        disk.append(file, [b"content"])
        disk.kill()
        assert disk.content(directory / "file") == b"content"

    def test_an_error_is_reported_once(self, disk: SimulatedDisk, directory: Path) -> None:
        file = disk.open(directory / "file")
        disk.fail("append", errno.ENOSPC)
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
            disk.append(file, [b"0123456789"])
        disk.append(file, [b"x"])
        assert disk.content(directory / "file") == b"01234x"

    def test_a_rename_across_directories_is_refused(self, disk: SimulatedDisk, directory: Path) -> None:
        disk.make_directory(directory / "other")
        disk.close(disk.open(directory / "file"))
        with pytest.raises(OSError, match=os.strerror(errno.EXDEV)):
            disk.rename(directory / "file", directory / "other" / "file")
