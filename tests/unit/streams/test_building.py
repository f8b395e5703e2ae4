"""What operators are told while a pipeline is being built."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.streams.building import Building


@pytest.mark.parametrize(
    ("names", "unique"),
    [
        (("count", "count", "count"), ("count", "count-2", "count-3")),
        (("count-2", "count", "count"), ("count-2", "count", "count-3")),
        (("count", "count", "count-2"), ("count", "count-2", "count-2-2")),
        (("count-all", "count", "window"), ("count-all", "count", "window")),
    ],
)
def test_each_operator_has_a_name_of_its_own(names: tuple[str, ...], unique: tuple[str, ...]) -> None:
    building = Building(pipeline="p", checkpoint=Path("p"))
    assert tuple(map(building.name_operator, names)) == unique
