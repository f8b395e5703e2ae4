"""`headrace explain` as it is called, with an explanation that is made by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import headrace.streams.explain as explaining
from headrace.cli.app import new_app
from headrace.errors import ConfigError
from headrace.streams.explain import Asked, Explanation
from headrace.streams.time.policies import bounded
from headrace.streams.timeline.example import Event, example
from headrace.streams.windows.aligned import AlignedWindows
from headrace.streams.windows.exact import Count
from headrace.streams.windows.kinds import tumbling
from headrace.streams.windows.late import side_output

PIPELINES = """
import headrace.streams as hr

payments = hr.topic("payments", schema="card string, at timestamp", event_time="at", watermark="10 seconds")

@hr.pipeline(writes=hr.topic("minutes", key="card"))
def minutes(payments):
    return payments

@hr.pipeline(writes=hr.topic("others", key="card"))
def others(payments):
    return payments
"""
WINDOWS = AlignedWindows(
    by=("key",),
    time="at",
    kind=tumbling("1 minute"),
    aggregates=(Count(name="count"),),
    watermark=bounded("10 seconds"),
    late=side_output("payments.late"),
)
EVENTS = [
    Event("ann", "10:00:05", "10:00:06", batch=0),
    Event("bob", "10:02:00", "10:02:00", batch=1),
    Event("ann", "10:00:30", "10:02:10", batch=2),
]


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Call the command with options; what it printed, and what it was asked to explain."""
    asked: dict[str, Any] = {}
    (tmp_path / "pipelines.py").write_text(PIPELINES)

    def explain(pipeline: Any, config: Any, **options: Any) -> Explanation:
        asked.update(pipeline=pipeline.name, config=config, **options)
        words = ("reads payments",)
        timelines = (example(WINDOWS, EVENTS),)
        return Explanation(pipeline=pipeline.name, words=words, timelines=timelines, notes=("so it is",))

    monkeypatch.setattr(explaining, "explain", explain)

    def run(*options: str, name: str = ":minutes") -> tuple[str, dict[str, Any]]:
        target = f"{tmp_path / 'pipelines.py'}{name}"
        arguments = ["explain", target, "--data", str(tmp_path), *options]
        done = CliRunner().invoke(new_app(["explain"]), arguments, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.output, asked

    return run


def test_the_pipeline_is_described_and_its_time_is_drawn(call: Any) -> None:
    output, asked = call("--from", "0:1", "--limit", "7")
    assert "minutes\n  reads payments\n" in output
    assert "window: 3 rows in batches 0 to 2" in output
    assert "10:01" in output
    assert "x late row" in output
    assert "window: 1 row late" in output
    assert "payments/0/2" in output
    assert "note: so it is" in output
    assert (asked["asked"].limit, str(asked["asked"].begin)) == (7, "0:1")


def test_late_rows_are_listed_alone(call: Any) -> None:
    output, asked = call("--late")
    assert asked["asked"] == Asked()
    assert "reads payments" not in output
    assert "payments/0/2" in output


def test_one_record_is_told_from_its_beginning_to_its_end(call: Any) -> None:
    output, _ = call("--record", "payments/0/2")
    assert "  payments/0/2 (key ann) happened at 2026-01-01T10:00:30Z" in output
    assert "it went to the topic payments.late" in output
    told = json.loads(call("--record", "payments/0/2", "--json")[0].partition("\n")[0])
    assert (told[0]["operator"], told[0]["fate"], len(told[0]["story"])) == ("window", "late", 4)


def test_everything_comes_as_json_and_as_files(call: Any, tmp_path: Path) -> None:
    svg, html = tmp_path / "time.svg", tmp_path / "time.html"
    output, _ = call("--json", "--svg", str(svg), "--html", str(html))
    told = json.loads(next(line for line in output.splitlines() if line.startswith("{")))
    assert (told["pipeline"], told["notes"]) == ("minutes", ["so it is"])
    assert [row["fate"] for row in told["operators"][0]["rows"]] == ["in_time", "in_time", "late"]
    assert svg.read_text().startswith("<svg ")
    assert html.read_text().startswith("<!doctype html>")


def test_a_key_is_chosen_from_those_that_there_are(call: Any) -> None:
    told = json.loads(call("--json", "--key", "bob")[0].partition("\n")[0])
    assert [row["key"] for row in told["operators"][0]["rows"]] == [["bob"]]
    with pytest.raises(ConfigError, match="no row has the key eve among those that are looked at; there are"):
        call("--key", "eve")


def test_what_is_asked_wrongly_is_refused_with_what_to_do(call: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="write TOPIC/PARTITION/OFFSET, such as payments/0/17"):
        call("--record", "payments-17")
    with pytest.raises(ConfigError, match="payments/0/99 is none of the rows that came to minutes"):
        call("--record", "payments/0/99")
    with pytest.raises(ConfigError, match="has several pipelines, minutes, others: name one"):
        call(name="")
    with pytest.raises(ConfigError, match="can't be written: No such file or directory"):
        call("--svg", str(tmp_path / "nowhere" / "time.svg"))
