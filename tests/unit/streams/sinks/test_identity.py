"""Results that are told apart by one key are not written by another."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.errors import PipelineError
from headrace.streams.sinks.identity import check_identity


def notes(*key: str, of: int | None = None, removes: bool = True) -> dict[str, dict[str, Any]]:
    """Of the columns of a result with this key, of which others may have been computed anew."""
    told: dict[str, dict[str, Any]] = {name: {"headrace.identity": of or len(key)} for name in key}
    deletes: dict[str, Any] = {"headrace.removed": True} if removes else {}
    return {**told, "quantity": {}, "_delete": deletes}


@pytest.mark.parametrize(
    ("told", "key"),
    [
        (notes("order_id", "line"), ("order_id",)),
        (notes("order_id"), ("order_id", "line")),
        (notes("order_id"), ("quantity",)),
        (notes("order_id"), ()),
        (notes("order_id", of=2), ("line",)),
    ],
)
def test_another_key_is_refused(told: dict[str, dict[str, Any]], key: tuple[str, ...]) -> None:
    with pytest.raises(PipelineError, match="pipeline p returns results that are told apart by order_id"):
        check_identity(told, key, place="topic t", pipeline="p")


@pytest.mark.parametrize(
    ("told", "key"),
    [
        (notes("order_id", "line"), ("line", "order_id")),
        # A column of the key was computed anew: what it is called now is not known.
        (notes("order_id", of=2), ("order_id", "number")),
        (notes(), ("order_id",)),
        # Windows give each result once, and a topic of them may have any key.
        (notes("card", "window", removes=False), ("card",)),
    ],
)
def test_what_can_be_right_is_taken(told: dict[str, dict[str, Any]], key: tuple[str, ...]) -> None:
    check_identity(told, key, place="topic t", pipeline="p")
