"""Where the database lives, and whom root lets through to it."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.postgres.account import Account
from headrace.postgres.home import home_of

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can lend an account")

OURSELVES = Account(os.geteuid(), os.getegid(), is_other=False)
SOMEBODY = Account(54321, 54322, is_other=True)


@pytest.fixture
def open_dir() -> Iterator[Path]:
    """A directory that everybody can enter, unlike pytest's own."""
    directory = Path(tempfile.mkdtemp(prefix="headrace-home-"))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_our_own_database_lies_in_the_data_directory_which_stays_private(tmp_path: Path) -> None:
    home = home_of(tmp_path / "data", OURSELVES)
    assert home == tmp_path / "data" / "postgres"
    assert mode_of(tmp_path / "data") == mode_of(home) == 0o700


@as_root
def test_root_lets_the_account_pass_and_nobody_look(open_dir: Path) -> None:
    home = home_of(open_dir / "data", SOMEBODY)
    assert home == open_dir / "data" / "postgres"
    for directory in (open_dir / "data", home):
        assert mode_of(directory) == 0o710
        assert directory.stat().st_gid == SOMEBODY.group_id
        assert SOMEBODY.may_enter(directory)


@as_root
def test_a_directory_that_nobody_else_can_reach_gets_a_home_elsewhere(open_dir: Path) -> None:
    private = open_dir / "root"
    private.mkdir(mode=0o700)
    home = home_of(private / "data", SOMEBODY, system_dir=open_dir / "var")
    assert home.parent == open_dir / "var"
    assert home == home_of(private / "data", SOMEBODY, system_dir=open_dir / "var")
    assert home != home_of(private / "other", SOMEBODY, system_dir=open_dir / "var")
    assert mode_of(private) == 0o700


def test_an_account_goes_by_the_rights_of_its_own_class(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.touch()
    owner = Account(os.geteuid(), 54322, is_other=True)
    member = Account(54321, program.stat().st_gid, is_other=True)
    program.chmod(0o500)
    assert owner._may(program, 0o5)
    assert not member._may(program, 0o5)
    assert not SOMEBODY._may(program, 0o5)
    program.chmod(0o050)
    assert not owner._may(program, 0o5)
    assert member._may(program, 0o5)
    program.chmod(0o005)
    assert SOMEBODY._may(program, 0o5)
