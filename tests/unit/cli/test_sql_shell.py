"""The shell of `headrace sql`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.cli.sql_shell import Shell
from headrace.errors import SqlError
from headrace.streams.sql.definitions import View
from headrace.streams.sql.statements import CreateView, Query
from headrace.streams.sql.store import Store


class Runner:
    """Notes what it is to run."""

    def __init__(self, data_dir: Path) -> None:
        self.engine = SimpleNamespace(catalog=SimpleNamespace(store=Store(data_dir=data_dir)))
        self.ran: list[Any] = []

    def run(self, statement: Any) -> View | None:
        self.ran.append(statement)
        if isinstance(statement, Query) and "bad" in statement.sql:
            raise SqlError("there is no table [bad]")
        return View(name="v", query="") if isinstance(statement, CreateView) else None


class Process:
    """A view that runs."""

    def __init__(self, code: int | None = None) -> None:
        self.code = code
        self.stdin = SimpleNamespace(close=lambda: self.said.append("closed"))
        self.said: list[str] = []

    def poll(self) -> int | None:
        return self.code

    def wait(self, _timeout: float) -> None:
        self.said.append("ended")


def typed(*lines: str | type[BaseException]) -> Callable[[str], str]:
    """What somebody types, and then Ctrl-D."""
    left = [*lines, EOFError]

    def read(_prompt: str) -> str:
        line = left.pop(0)
        if isinstance(line, str):
            return line
        raise line

    return read


def run(
    data_dir: Path, *lines: str | type[BaseException], code: int | None = None, is_running: bool = False
) -> tuple[Runner, Process]:
    runner, process = Runner(data_dir), Process(code)

    def start(_view: View) -> Process:
        process.said.append("started")
        return process

    driver = SimpleNamespace(
        start=start, is_running=lambda _name: is_running, log_path=lambda name: data_dir / f"{name}.log"
    )
    Shell(runner, driver, typed(*lines)).run()  # type: ignore[arg-type] # they stand in for them
    return runner, process


def test_a_statement_ends_with_its_semicolon_over_several_lines(tmp_path: Path) -> None:
    runner, _ = run(tmp_path, "SELECT ';'", "FROM t;", "SELECT 1; SELECT 2;")
    assert [each.sql for each in runner.ran] == ["SELECT ';'\nFROM t", "SELECT 1", "SELECT 2"]


def test_an_error_is_told_and_the_shell_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runner, _ = run(tmp_path, "SELECT bad;", "DELETE FROM t;", "SELECT 1;")
    assert len(runner.ran) == 2
    told = capsys.readouterr().err
    assert "there is no table [bad]" in told
    assert "'DELETE' begins no statement" in told


def test_what_was_typed_is_given_up_by_an_interrupt(tmp_path: Path) -> None:
    runner, _ = run(tmp_path, "SELECT 1", KeyboardInterrupt, "SELECT 2;")
    assert [each.sql for each in runner.ran] == ["SELECT 2"]


@pytest.mark.parametrize("word", ["exit", "quit;", "\\q"])
def test_words_end_it_too(tmp_path: Path, word: str) -> None:
    runner, _ = run(tmp_path, word, "SELECT 1;")
    assert runner.ran == []


def test_views_run_beside_it_and_end_with_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, process = run(tmp_path, "CREATE VIEW v AS SELECT 1;", "help;")
    assert process.said == ["started", "closed", "ended"]
    assert "stopped v; `headrace run --views` runs views without this shell" in capsys.readouterr().err


def test_a_view_that_runs_is_not_started_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    create = "CREATE VIEW IF NOT EXISTS v AS SELECT 1;"
    _, process = run(tmp_path, create, create)
    assert process.said == ["started", "closed", "ended"]
    _, process = run(tmp_path, create, is_running=True)
    assert process.said == []
    assert capsys.readouterr().err.count("view v runs already") == 2


def test_a_view_that_has_ended_by_itself_is_told_and_can_be_started_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    create = "CREATE VIEW IF NOT EXISTS v AS SELECT 1;"
    _, process = run(tmp_path, create, create, code=3)
    assert process.said == ["started", "started"]
    told = capsys.readouterr().err.replace("\n", "")
    assert told.count("view v has ended, with code 3: see ") == 2
    assert "v.log" in told


def test_its_history_is_in_the_data_directory(tmp_path: Path) -> None:
    run(tmp_path, "SELECT 1;")
    assert (tmp_path / "sql" / "history").exists()
