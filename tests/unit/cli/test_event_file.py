"""The deciders and read models of a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.cli.event_file import load_event_file, split_target
from headrace.errors import ConfigError

DECIDERS = """
from dataclasses import dataclass

from headrace import events
from headrace.events.projections import projection


@dataclass(frozen=True)
class Happened:
    what: str


def body():
    class Body:
        initial = None

        def decide(state, command):
            return []

        def evolve(state, event):
            return None

        events = (Happened,)

    return Body


First = events.decider("thing")(body())
Second = events.decider("thing")(body())
Other = events.decider("other")(body())


@projection("things", create="CREATE TABLE things (name text)")
def things(work, event):
    pass
"""


@pytest.mark.parametrize("target", ["bank.py", ":Account", "bank.py:", ""])
def test_a_target_names_a_file_and_a_decider(target: str) -> None:
    with pytest.raises(ConfigError, match="names no decider"):
        split_target(target)


def test_a_target_may_have_a_colon_in_its_path() -> None:
    assert split_target("a:b/bank.py:Account") == (Path("a:b/bank.py"), "Account")


def test_a_file_has_its_deciders_by_name_and_the_first_of_a_category_decides(tmp_path: Path) -> None:
    path = tmp_path / "things.py"
    path.write_text(DECIDERS)
    file = load_event_file(path)
    assert list(file.deciders) == ["First", "Second", "Other"]
    assert file.by_category() == {"thing": file.decider("First"), "other": file.decider("Other")}
    assert list(file.projections) == ["things"]
    with pytest.raises(ConfigError, match="has no decider 'Third': it has First, Second, Other"):
        file.decider("Third")


def test_a_file_that_is_no_python_or_fails_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no file"):
        load_event_file(tmp_path / "nowhere.py")
    (tmp_path / "text.txt").write_text("hello")
    with pytest.raises(ConfigError, match=r"must end in \.py"):
        load_event_file(tmp_path / "text.txt")
    (tmp_path / "wrong.py").write_text("def f(:\n")
    with pytest.raises(ConfigError, match="line 1"):
        load_event_file(tmp_path / "wrong.py")
