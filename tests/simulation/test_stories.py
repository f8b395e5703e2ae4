"""A thousand stories of a broker in a world where everything breaks: each of them ends well.

A failure prints its seed and the command that tells the story again, event by event. `make soak` tells more.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from headrace.testing.simulation.story import tell

STORY_COUNT = 1_000
CHUNK = 25

DIGEST = """
import hashlib
from headrace.testing.simulation.story import tell
for seed in range(40, 52):
    lines = []
    told = tell(seed, lines.append)
    print(seed, len(lines), hashlib.sha256(repr((lines, told)).encode()).hexdigest())
"""


@pytest.mark.parametrize("first", range(0, CHUNK, 5))
def test_a_story_ends_well(first: int) -> None:
    for seed in range(first, first + 5):
        tell(seed).check()


@pytest.mark.parametrize("seed", [7_003_812, 7_004_322])
def test_a_clock_that_jumps_right_after_a_start_costs_nothing(seed: int) -> None:
    tell(seed).check()


@pytest.mark.parametrize("seed", [7_014_206])
def test_a_batch_that_others_have_pushed_out_of_its_segment_is_missed(seed: int) -> None:
    tell(seed).check()


@pytest.mark.simulation
@pytest.mark.parametrize("first", range(CHUNK, STORY_COUNT, CHUNK))
def test_every_story_ends_well(first: int) -> None:
    for seed in range(first, first + CHUNK):
        tell(seed).check()


@pytest.mark.simulation
def test_a_seed_tells_the_same_story_in_every_process() -> None:
    def told(hash_seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        arguments = [sys.executable, "-c", DIGEST]
        return subprocess.run(arguments, env=environment, check=True, capture_output=True, text=True).stdout

    assert told("1") == told("2")
