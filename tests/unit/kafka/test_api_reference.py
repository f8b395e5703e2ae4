"""The page that lists the APIs says what is offered."""

from __future__ import annotations

import re
from pathlib import Path

from headrace.kafka.api import APIS

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "kafka-apis.md"
ROW = re.compile(r"\| (\d+) \| (\w+) \| ([\d to]+) \| .+ \|")


def test_every_api_that_is_offered_is_listed_with_its_versions_and_no_other_is() -> None:
    listed = [match.groups() for match in map(ROW.fullmatch, PAGE.read_text().splitlines()) if match]
    offered = [
        (
            str(api.key),
            api.request.__name__.removesuffix("Request"),
            str(api.version_first)
            if api.version_first == api.version_last
            else f"{api.version_first} to {api.version_last}",
        )
        for api in APIS.values()
    ]
    assert listed == offered, (
        "change the rows of docs/reference/kafka-apis.md, which are in the order of keys"
    )
