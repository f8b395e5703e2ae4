"""What tells the rows of a table apart."""

from __future__ import annotations

import pytest

from headrace.errors import PipelineError
from headrace.streams.changelog.current import CurrentRows
from headrace.streams.changes import of_versions, refuse_other_key

COLUMNS = ("order_id", "line", "quantity", "_change")


@pytest.mark.parametrize("key", [("order_id", "line"), ("line",)])
def test_a_key_by_which_the_deletes_of_a_topic_are_not_told_is_refused(key: tuple[str, ...]) -> None:
    with pytest.raises(PipelineError, match=r"described with order_id, .*: describe the topic as hr\.topic"):
        refuse_other_key("hr.changes", key, ["order_id"], COLUMNS)


@pytest.mark.parametrize(
    ("key", "of_topic"),
    [
        (("line", "order_id"), ["order_id", "line"]),
        (("order_id",), None),
        # The column has got another name.
        (("order_id",), ["id"]),
    ],
)
def test_the_key_of_the_topic_is_taken_by_any_name(key: tuple[str, ...], of_topic: list[str] | None) -> None:
    refuse_other_key("hr.changes", key, of_topic, COLUMNS)


class _Stream:
    """As much of a stream as is looked at before anything is computed."""

    isStreaming = True  # noqa: N815 - as Spark calls it
    columns = ("id", "_change")


def test_a_stream_that_has_lost_the_order_of_its_versions_is_refused() -> None:
    with pytest.raises(PipelineError, match="have no column _kafka, by which the versions of a row are put"):
        of_versions(
            _Stream(),  # type: ignore[arg-type] # it is refused before rows are read
            CurrentRows(key=("id",)),
            title="hr.changes",
            kind="current rows",
            key=("id",),
            buckets=1,
        )
