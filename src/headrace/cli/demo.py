"""`headrace demo`: everything at once. A broker, live data, a pipeline on Spark, and a page to watch.

The demo supervises four children and does no work of its own: it knows how it is doing from the page's
own numbers, so what it reports is what a person in front of the page sees.
"""

from __future__ import annotations

import json
import time
import urllib.request
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from headrace.cli.demo_parts import (
    broker_child,
    console_child,
    create_topics,
    demo_directory,
    example_dir,
    generator_child,
    pipeline_child,
    tell_rate,
)
from headrace.cli.foreground import free_address, ignore_signals, line_printer, stop_on_signals
from headrace.cli.output import say
from headrace.config import default_data_dir
from headrace.errors import FaultError
from headrace.supervisor import Supervisor

STATUS_EVERY_S: Final = 5.0
LOOP_PAUSE_S: Final = 0.2
STATS_TIMEOUT_S: Final = 10.0
TROUBLES: Final = ("--duplicates", "0.01", "--malformed", "0.002")
"""What makes life hard for a pipeline, so that the page shows that it copes."""
INTERRUPTED: Final = 130
"""The exit code of a program that Ctrl-C has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """What the user asked for."""

    rate: int
    seed: int
    port: int
    broker_port: int
    realtime: bool


def demo(
    name: Annotated[str, typer.Argument(help="Which example to run.")] = "fraud",
    seconds: Annotated[
        float | None,
        typer.Option(min=1, help="Stop after so long; exit code 0 only if alerts were seen."),
    ] = None,
    rate: Annotated[int, typer.Option(min=1, help="Transactions per second.")] = 200,
    seed: Annotated[int, typer.Option(help="The same seed makes the same world.")] = 7,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Where the page is served.")] = 8500,
    broker_port: Annotated[int, typer.Option(min=0, max=65535, help="Where the broker listens.")] = 9092,
    realtime: Annotated[bool, typer.Option(help="Real-time mode, or micro-batches.")] = True,
    keep_data: Annotated[
        bool, typer.Option("--keep-data", help="Go on with the last run's data instead of starting empty.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show what the parts print.")] = False,
) -> None:
    """Run an example with live data, its pipeline on Spark and a page to watch, until Ctrl-C."""
    _require_spark()
    example = example_dir(name)
    options = DemoOptions(rate=rate, seed=seed, port=port, broker_port=broker_port, realtime=realtime)
    supervisor = Supervisor(line_printer(verbose=verbose))
    alert_count: int | None = None
    stop_on_signals()
    with demo_directory(default_data_dir(), name, keep_data=keep_data) as directory:
        try:
            page = _start(supervisor, example, directory, options)
            alert_count = _watch(supervisor, page, seconds)
        except KeyboardInterrupt:
            pass
        finally:
            ignore_signals()
            # The terminal may be gone, which is no reason to leave anything running.
            with suppress(OSError):
                say("stopping")
            supervisor.stop()
    if seconds is not None:
        _judge(alert_count, seconds)


def _require_spark() -> None:
    """Fail before anything is started where Java or the connector is missing."""
    # Spark is an extra: only the commands that need it may import what needs it.
    from headrace.config import StreamsConfig  # noqa: PLC0415
    from headrace.streams.jars import resolve_jars  # noqa: PLC0415
    from headrace.streams.java import find_java  # noqa: PLC0415

    find_java()
    config = StreamsConfig()
    resolve_jars(config.cache_dir, config.jars_dir)


def _start(supervisor: Supervisor, example: Path, directory: Path, options: DemoOptions) -> str:
    """Start the children, each when what it needs is there. Returns the page's address."""
    broker = broker_child(free_address("broker", options.broker_port), directory / "broker")
    bootstrap = supervisor.start(broker)
    say(f"broker    listening on {bootstrap}; any Kafka client can use it")
    create_topics(example, bootstrap)
    tell_rate(example, bootstrap, options.rate)
    page = supervisor.start(
        console_child(free_address("page", options.port), bootstrap, directory, example / "view.toml")
    )
    say(f"page      [bold]{page}[/bold]")
    say("pipeline  starting Spark (about half a minute)")
    running = supervisor.start(pipeline_child(example, bootstrap, directory, realtime=options.realtime))
    say(f"pipeline  running {running}")
    supervisor.start(generator_child(example, bootstrap, rate=options.rate, seed=options.seed, more=TROUBLES))
    say(f"generator {options.rate} transactions a second; watch the page; Ctrl-C stops everything")
    return page


def _watch(supervisor: Supervisor, page: str, seconds: float | None) -> int:
    """Keep the children running and report how they do. Returns how many alerts came meanwhile."""
    count_before = _alert_count(page)
    end_s = time.monotonic() + seconds if seconds is not None else float("inf")
    next_status_s = time.monotonic() + STATUS_EVERY_S
    while (now_s := time.monotonic()) < end_s:
        supervisor.check()
        if now_s >= next_status_s:
            next_status_s = now_s + STATUS_EVERY_S
            say(_status(page))
        time.sleep(min(LOOP_PAUSE_S, max(0.0, end_s - now_s)))
    return _alert_count(page) - count_before


def _alert_count(page: str) -> int:
    try:
        return int(_stats(page)["alerts"]["alert_count"])
    except (OSError, ValueError) as error:
        raise FaultError(f"the page at {page} does not say how many alerts it has seen: {error}") from error


def _status(page: str) -> str:
    try:
        stats = _stats(page)
    except (OSError, ValueError) as error:
        return f"the page does not answer: {error}"
    latency = stats["latency"]
    return (
        f"{stats['input']['per_s'] or 0:.0f} transactions/s   {stats['alerts']['alert_count']} alerts   "
        f"latency p50 {_ms(latency['p50_ms'])}, p99 {_ms(latency['p99_ms'])}"
    )


def _judge(alert_count: int | None, seconds: float) -> None:
    if alert_count is None:
        say(f"stopped before {seconds:.0f} s were over")
        raise typer.Exit(INTERRUPTED)
    if alert_count == 0:
        raise FaultError(
            f"no alert was seen in {seconds:.0f} s: run again with --verbose to see what the parts print"
        )
    say(f"{alert_count} alerts were seen")


def _stats(page: str) -> dict[str, Any]:
    # The page is on this machine: a proxy that the environment names must not be asked.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    # What the page tells is its address with a token, which only a browser needs.
    with opener.open(f"{page.partition('/?')[0]}/api/stats", timeout=STATS_TIMEOUT_S) as response:
        stats: dict[str, Any] = json.load(response)
    return stats


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f} ms"
