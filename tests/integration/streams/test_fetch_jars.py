"""What Spark's own resolver says, told in a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import SetupError
from headrace.streams.jars import Jar, fetch_with_spark

pytestmark = pytest.mark.spark


def test_with_no_way_to_the_repository_the_error_names_the_jars_and_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A proxy that is not there keeps the test from depending on the network.
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=1")
    missing = Jar(group="org.example", artifact="missing", version="0", sha256="")

    with pytest.raises(
        SetupError, match=r"Server access error .*org\.example:missing:0 .*HEADRACE_JARS"
    ) as told:
        fetch_with_spark((missing,), tmp_path, lambda _: None)
    assert "\n" not in str(told.value)
