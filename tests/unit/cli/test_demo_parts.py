"""What a demo is made of."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from headrace.cli.demo_parts import console_child, demo_directory, example_dir, pipeline_child
from headrace.cli.foreground import free_port
from headrace.config import Address, ConsoleConfig
from headrace.errors import ConfigError, DataDirectoryInUse


def test_the_preferred_port_is_used_when_it_is_free() -> None:
    port = free_port(0)
    assert free_port(port) == port


def test_another_port_is_used_when_the_preferred_one_is_taken() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert free_port(taken.getsockname()[1]) != taken.getsockname()[1]


def test_a_demo_starts_with_an_empty_directory(tmp_path: Path) -> None:
    with demo_directory(tmp_path, "fraud", keep_data=False) as directory:
        (directory / "old").touch()
    with demo_directory(tmp_path, "fraud", keep_data=False) as directory:
        assert list(directory.iterdir()) == []


def test_the_database_that_root_keeps_elsewhere_for_a_demo_begins_empty_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    monkeypatch.setattr("headrace.postgres.home.elsewhere", lambda _directory: elsewhere)
    for keep_data in (True, False):
        elsewhere.mkdir(exist_ok=True)
        with demo_directory(tmp_path, "shop", keep_data=keep_data):
            assert elsewhere.exists() is keep_data


def test_a_demo_goes_on_with_its_data_when_asked(tmp_path: Path) -> None:
    with demo_directory(tmp_path, "fraud", keep_data=False) as directory:
        (directory / "old").touch()
    with demo_directory(tmp_path, "fraud", keep_data=True) as directory:
        assert [path.name for path in directory.iterdir()] == ["old"]


def test_a_second_demo_in_the_same_directory_is_refused_and_deletes_nothing(tmp_path: Path) -> None:
    with demo_directory(tmp_path, "fraud", keep_data=False) as directory:
        (directory / "live").touch()
        with (
            pytest.raises(DataDirectoryInUse, match="running already"),
            demo_directory(tmp_path, "fraud", keep_data=False),
        ):
            pass
        assert (directory / "live").exists()


def test_an_unknown_example_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"choose one of .*fraud"):
        example_dir("nonsense")


def test_the_page_has_a_token_that_outlives_its_process_and_is_not_printed() -> None:
    child = console_child(Address("127.0.0.1", 8500), "127.0.0.1:9092", Path())
    token = child.environment["HEADRACE_CONSOLE_TOKEN"]
    assert ConsoleConfig(token=token).token == token
    assert token not in repr(child)


def test_pipelines_are_run_with_the_options_of_the_example() -> None:
    child = pipeline_child(Path("p.py"), "h:1", Path(), realtime=False, options=("--shuffle-partitions", "1"))
    assert child.arguments[:6] == ("-m", "headrace", "run", "p.py", "--shuffle-partitions", "1")
