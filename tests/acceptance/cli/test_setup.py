"""`headrace setup` on machines that lack something."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.acceptance.conftest import CommandLine


def test_without_java_one_sentence_says_what_to_install(command_line: CommandLine) -> None:
    command_line.variables = {"PATH": "", "JAVA_HOME": ""}
    said = command_line.refusal("setup", "--no-install", code=2)
    assert "Java 17" in said


def test_a_java_home_that_is_none_is_named(command_line: CommandLine, tmp_path: Path) -> None:
    command_line.variables = {"PATH": "", "JAVA_HOME": str(tmp_path / "no-java")}
    assert "no-java" in command_line.refusal("setup", "--no-install", code=2)


def test_jars_that_are_missing_from_the_users_directory_are_named(
    command_line: CommandLine, tmp_path: Path
) -> None:
    command_line.variables = {"HEADRACE_JARS": str(tmp_path)}
    said = command_line.refusal("setup", code=2)
    assert "spark-sql-kafka-0-10_2.13-4.2.0.jar" in said
    assert "kafka-clients-3.9.2.jar" in said


def test_a_demo_without_java_starts_nothing(command_line: CommandLine) -> None:
    command_line.variables = {"PATH": "", "JAVA_HOME": ""}
    assert "Java 17" in command_line.refusal("demo", code=2)
    assert not (command_line.directory / "data").exists()
