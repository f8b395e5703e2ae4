"""`headrace demo`: everything at once. A broker, live data, pipelines on Spark, and a page to watch.

The demo supervises children and does no work of its own: it knows how it is doing from the page's own
numbers, so what it reports is what a person in front of the page sees. Which children there are, and what has
to be seen, an example says in its demo.toml: see demo_recipe.py.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Annotated, Final

import typer

from headrace.cli.demo_parts import demo_directory, example_dir
from headrace.cli.demo_proof import Proof, proof_of
from headrace.cli.demo_recipe import FILE_NAME, read_recipe
from headrace.cli.demo_start import DemoOptions, require_parts, start_parts
from headrace.cli.foreground import ignore_signals, line_printer, stop_on_signals
from headrace.cli.output import say
from headrace.config import default_data_dir
from headrace.supervisor import Supervisor

STATUS_EVERY_S: Final = 5.0
LOOP_PAUSE_S: Final = 0.2
PATIENCE_S: Final = 600.0
"""How long a demo that is to stop goes on for what it has to show: a busy machine needs minutes for that."""
INTERRUPTED: Final = 130
"""The exit code of a program that Ctrl-C has ended."""


def demo(
    name: Annotated[str, typer.Argument(help="Which example to run: fraud, shop or bank.")] = "fraud",
    seconds: Annotated[
        float | None,
        typer.Option(
            min=1,
            help="Stop after so long, but not before results were seen, or changes in all stores: "
            "it is given ten minutes more for that, and exit code 1 if they don't come.",
        ),
    ] = None,
    rate: Annotated[
        int | None,
        typer.Option(
            min=1, help="Transactions per second.", show_default="200 for fraud, 20 for shop, 5 for bank"
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed makes the same world.")] = 7,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Where the page is served.")] = 8500,
    broker_port: Annotated[int, typer.Option(min=0, max=65535, help="Where the broker listens.")] = 9092,
    postgres_port: Annotated[int, typer.Option(min=0, max=65535, help="Where PostgreSQL listens.")] = 5432,
    redis_port: Annotated[int, typer.Option(min=0, max=65535, help="Where Redis listens.")] = 6379,
    realtime: Annotated[
        bool | None,
        typer.Option(
            "--realtime/--no-realtime",
            help="Real-time mode, or micro-batches.",
            show_default="real-time for fraud; stores are written in micro-batches",
        ),
    ] = None,
    keep_data: Annotated[
        bool, typer.Option("--keep-data", help="Go on with the last run's data instead of starting empty.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show what the parts print.")] = False,
) -> None:
    """Run an example with live data, its pipelines on Spark and a page to watch, until Ctrl-C."""
    example = example_dir(name)
    recipe = read_recipe(example / FILE_NAME)
    require_parts(recipe)
    options = DemoOptions(
        rate=recipe.rate if rate is None else rate,
        seed=seed,
        port=port,
        broker_port=broker_port,
        postgres_port=postgres_port,
        redis_port=redis_port,
        realtime=recipe.is_realtime if realtime is None else realtime,
    )
    supervisor = Supervisor(line_printer(verbose=verbose))
    proof: Proof | None = None
    watched_s: float | None = None
    stop_on_signals()
    with demo_directory(default_data_dir(), name, keep_data=keep_data) as directory:
        try:
            page = start_parts(supervisor, example, recipe, directory, options)
            proof = proof_of(recipe.proof, page)
            watched_s = _watch(supervisor, proof, seconds)
        except KeyboardInterrupt:
            pass
        finally:
            ignore_signals()
            # The terminal may be gone, which is no reason to leave anything running.
            with suppress(OSError):
                say("stopping")
            supervisor.stop()
    if seconds is not None:
        _judge(proof if watched_s is not None else None, watched_s or seconds)


def _watch(supervisor: Supervisor, proof: Proof, seconds: float | None) -> float:
    """Keep the children running and report how they do, until time is up. Returns how long that was."""
    started_s = time.monotonic()
    _report(supervisor, proof, until_s=float("inf") if seconds is None else started_s + seconds)
    proof.count()
    if not proof.is_given():
        say(f"not all was seen yet: going on until it is, for {PATIENCE_S / 60:.0f} minutes at most")
    given_up_s = time.monotonic() + PATIENCE_S
    while not proof.is_given() and time.monotonic() < given_up_s:
        _report(supervisor, proof, until_s=time.monotonic() + STATUS_EVERY_S)
        say(proof.status())
        proof.count()
    return time.monotonic() - started_s


def _report(supervisor: Supervisor, proof: Proof, *, until_s: float) -> None:
    next_status_s = time.monotonic() + STATUS_EVERY_S
    while (now_s := time.monotonic()) < until_s:
        supervisor.check()
        if now_s >= next_status_s:
            next_status_s = now_s + STATUS_EVERY_S
            say(proof.status())
        time.sleep(min(LOOP_PAUSE_S, max(0.0, until_s - now_s)))


def _judge(proof: Proof | None, seconds: float) -> None:
    """Say what was seen; raises where it is too little. None for a demo that was interrupted."""
    if proof is None:
        say(f"stopped before {seconds:.0f} s were over")
        raise typer.Exit(INTERRUPTED)
    say(proof.verdict(seconds))
