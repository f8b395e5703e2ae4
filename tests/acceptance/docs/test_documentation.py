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
LINK = re.compile(r"\]\((?!https?://)([^)#]+)[^)]*\)")


def python_blocks() -> list[object]:
    blocks: list[object] = []
    for page in PAGES:
        for number, source in enumerate(PYTHON_BLOCK.findall(page.read_text()), start=1):
            marks = [pytest.mark.spark] if "headrace.streams" in source else []
            name = f"{page.relative_to(ROOT)}, block {number}"
            blocks.append(pytest.param(source, id=name, marks=marks))
    return blocks


@pytest.mark.parametrize("source", python_blocks())
def test_the_python_of_the_documentation_runs(source: str, tmp_path: Path) -> None:
    is_test = "def test_" in source
    script = tmp_path / ("test_example.py" if is_test else "example.py")
    script.write_text(source)
    runner = ["-m", "pytest", "-q", "-p", "no:randomly"] if is_test else []
    done = subprocess.run(
        [sys.executable, *runner, str(script)],
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


def test_the_page_on_faults_lists_every_failpoint() -> None:
    page = (ROOT / "docs" / "how-to" / "test-under-faults.md").read_text()
    assert re.findall(r"^\| `([a-z_.]+)` \| (.+) \|$", page, re.MULTILINE) == list(FAILPOINTS.items())
