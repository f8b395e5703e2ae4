"""What `hr.lookup` refuses, without Spark."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.errors import PipelineError
from headrace.streams.lookup import lookup


def test_changes_that_do_not_tell_their_order_are_refused() -> None:
    stream, table = (
        cast("Any", SimpleNamespace(isStreaming=True, columns=columns))
        for columns in (["id", "_kafka"], ["id", "name", "_change"])
    )
    with pytest.raises(PipelineError, match=r"hr\.lookup: these rows have no column _kafka"):
        lookup(stream, table, on="id")
