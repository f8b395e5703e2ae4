"""What real-time mode refuses to search."""

from __future__ import annotations

import pytest

from headrace.errors import PipelineError
from headrace.streams.match_recent import refuse_several_topics


def test_rows_of_several_topics_are_refused_because_they_have_no_order() -> None:
    with pytest.raises(PipelineError, match="the topics payments, refunds have no common order"):
        refuse_several_topics({"refunds", "payments"})
    refuse_several_topics({"payments"})
    refuse_several_topics(set())
