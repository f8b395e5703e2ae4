"""The documentation is true: its Python runs, its links lead somewhere, its reference is the code's own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.failpoints import FAILPOINTS

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")] + [
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
]
PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ON_SPARK = "headrace.streams"
LINK = re.compile(r"\]\((?!https?://)([^)#]+)[^)]*\)")


def programs() -> list[object]:
    """Each block of Python is a program. The tests of a page are one, and those on Spark of all pages."""
    found: list[object] = []
    tests_on_spark: dict[str, str] = {}
    for page in PAGES:
        name = str(page.relative_to(ROOT))
        sources = PYTHON_BLOCK.findall(page.read_text())
        blocks = {f"{name}, block {number}": source for number, source in enumerate(sources, start=1)}
        tests = {block: source for block, source in blocks.items() if "def test_" in source}
        groups = [{block: source} for block, source in blocks.items() if block not in tests]
        if ON_SPARK in "".join(tests.values()):
            tests_on_spark |= tests
        elif tests:
            groups.append(tests)
        for group in groups:
            marks = [pytest.mark.spark] if ON_SPARK in "".join(group.values()) else []
            found.append(pytest.param(group, id="; ".join(group), marks=marks))
    marks = [pytest.mark.spark, pytest.mark.long]
    return [*found, pytest.param(tests_on_spark, id="tests on Spark", marks=marks)]


@pytest.mark.parametrize("blocks", programs())
def test_the_python_of_the_documentation_runs(blocks: dict[str, str], tmp_path: Path) -> None:
    for name, source in blocks.items():
        (tmp_path / f"test_{re.sub(r'[^a-z0-9]+', '_', name.lower())}.py").write_text(source)
    are_tests = "def test_" in "".join(blocks.values())
    runner = ["-m", "pytest", "-q", "-p", "no:randomly"] if are_tests else []
    done = subprocess.run(
        [sys.executable, *runner, *sorted(map(str, tmp_path.iterdir()))],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    broken = [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()]
    assert broken == []


def test_the_reference_of_the_commands_is_up_to_date(tmp_path: Path) -> None:
    fresh = tmp_path / "cli.md"
    subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "command_reference.py"), str(fresh)],
        check=True,
        env={**os.environ, "COLUMNS": "80"},
    )
    assert (ROOT / "docs" / "reference" / "cli.md").read_text() == fresh.read_text(), "run `make docs`"


@pytest.mark.spark
def test_the_pictures_of_time_are_up_to_date(tmp_path: Path) -> None:
    program = ROOT / "scripts" / "pictures_of_time.py"
    subprocess.run([sys.executable, str(program), str(tmp_path)], check=True)
    drawn = {path.name: path.read_text() for path in tmp_path.glob("*.svg")}
    kept = {path.name: path.read_text() for path in (ROOT / "docs" / "images").glob("*.svg")}
    assert kept == drawn, "run `make docs`"


def test_the_page_on_faults_lists_every_failpoint() -> None:
    page = (ROOT / "docs" / "how-to" / "test-under-faults.md").read_text()
    assert re.findall(r"^\| `([a-z_.]+)` \| (.+) \|$", page, re.MULTILINE) == list(FAILPOINTS.items())
