"""Without the packages of its extra, the event store says which extra to install."""

from __future__ import annotations

import subprocess
import sys

import pytest

WITHOUT = """
import sys
sys.modules[{missing!r}] = None
import headrace.events
"""


@pytest.mark.parametrize("missing", ["msgspec", "cryptography"])
def test_what_to_install_is_told_where_the_extra_is_missing(missing: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT.format(missing=missing)], capture_output=True, text=True, check=False
    )

    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert "SetupError: the event store needs an extra" in last
    assert f"({missing} is missing): pip install 'headrace[postgres]'" in last
