"""What is kept of how a pipeline was run."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.config import StreamsConfig
from headrace.errors import ConfigError
from headrace.streams.code import fingerprint, fingerprint_of
from headrace.streams.history import RUNS_MAX, History, Run, history_path, read_history, write_history
from headrace.streams.plans import Description

PLAN = Description(
    sources=("orders",), operators=(), shuffle_partition_count=2, output_mode="update", watermarks={}
)


def run(
    since_batch: int = 0, code: str = "a", guarantee: str = "exactly-once", *, realtime: bool = False
) -> Run:
    return Run(since_batch=since_batch, code=code, realtime=realtime, guarantee=guarantee)


@pytest.fixture
def config(tmp_path: Path) -> StreamsConfig:
    return StreamsConfig(data_dir=tmp_path)


def test_a_history_is_read_as_it_was_written(config: StreamsConfig) -> None:
    history = History(plan=PLAN, runs=(run(), run(7, "b")))

    write_history(config, "copies", history)

    assert read_history(config, "copies") == history


def test_where_nothing_was_kept_there_is_none(config: StreamsConfig) -> None:
    assert read_history(config, "copies") is None


def test_a_damaged_history_is_told_with_the_way_out(config: StreamsConfig) -> None:
    path = history_path(config, "copies")
    path.parent.mkdir(parents=True)
    path.write_text('{"plan": {}')

    with pytest.raises(ConfigError, match="remove it if the pipeline has not changed"):
        read_history(config, "copies")


def test_a_run_like_the_last_adds_nothing() -> None:
    history = History(plan=PLAN, runs=(run(),))

    assert history.with_run(PLAN, run(9), is_begun=False) == history


def test_other_code_and_another_guarantee_are_remembered_with_their_first_batch() -> None:
    history = History(plan=PLAN, runs=(run(),))

    grown = history.with_run(PLAN, run(5, "b"), is_begun=False)
    grown = grown.with_run(PLAN, run(8, "b", "at-least-once"), is_begun=False)

    assert [each.since_batch for each in grown.runs] == [0, 5, 8]


def test_a_start_that_came_to_no_batch_is_forgotten() -> None:
    history = History(plan=PLAN, runs=(run(), run(5, "b")))

    assert [each.code for each in history.with_run(PLAN, run(5, "c"), is_begun=False).runs] == ["a", "c"]


def test_a_start_that_was_killed_in_its_first_batch_is_remembered() -> None:
    history = History(plan=PLAN, runs=(run(0, "a", "at-least-once"),))

    runs = history.with_run(PLAN, run(0, "a", "exactly-once"), is_begun=True).runs

    assert [each.guarantee for each in runs] == ["at-least-once", "exactly-once"]


def test_a_start_in_real_time_mode_is_remembered_because_its_batches_are_noted_down_when_they_end() -> None:
    history = History(plan=PLAN, runs=(run(0, "a", "at-least-once", realtime=True),))

    runs = history.with_run(PLAN, run(0, "a", "exactly-once"), is_begun=False).runs

    assert [each.realtime for each in runs] == [True, False]


def test_no_more_than_so_many_runs_are_remembered() -> None:
    history = History(plan=PLAN, runs=(run(),))
    for number in range(1, 2 * RUNS_MAX):
        history = history.with_run(PLAN, run(number, str(number)), is_begun=False)

    assert len(history.runs) == RUNS_MAX
    assert history.runs[-1].code == str(2 * RUNS_MAX - 1)


def test_comments_and_layout_are_not_part_of_the_code() -> None:
    assert fingerprint_of("x = 1  # one\n") == fingerprint_of("\n\nx=1\n")
    assert fingerprint_of("x = 1") != fingerprint_of("x = 2")


def test_a_function_that_comes_from_no_file_has_no_fingerprint() -> None:
    names: dict[str, object] = {}
    exec("def made(): pass", names)  # noqa: S102 - a function without a file is what this is about
    made = names["made"]
    assert callable(made)

    assert fingerprint(made) is None
    assert fingerprint(run) is not None
