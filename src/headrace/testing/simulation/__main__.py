"""Tell stories from the command line: one of them event by event, or many until one of them fails."""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from os import cpu_count
from random import SystemRandom

from headrace.testing.simulation.story import Told, rerun_command, tell

CHUNK = 20


def main() -> int:
    """Tell what was asked for; 1 if a story did not end well."""
    parser = argparse.ArgumentParser(
        prog="python -m headrace.testing.simulation",
        description="Run the broker in a simulated world, where everything that can break does.",
    )
    parser.add_argument("--seed", type=int, help="tell this story alone")
    parser.add_argument("--trace", action="store_true", help="with --seed: print every event")
    parser.add_argument("--seeds", type=int, default=1000, help="how many stories to tell (default 1000)")
    parser.add_argument("--start", type=int, help="the first of them (default: a random one)")
    parser.add_argument("--processes", type=int, default=cpu_count() or 1, help="default: one for each core")
    options = parser.parse_args()
    if options.seed is not None:
        return _report(tell(options.seed, print if options.trace else None))
    start = SystemRandom().randrange(10**9) if options.start is None else options.start
    return _soak(range(start, start + options.seeds), options.processes)


def _soak(seeds: range, processes: int) -> int:
    """Tell many stories, and stop at the first that does not end well."""
    print(f"{len(seeds)} stories, from seed {seeds.start} on, in {processes} processes", flush=True)
    began_s = time.monotonic()
    chunks = [seeds[first : first + CHUNK] for first in range(0, len(seeds), CHUNK)]
    with ProcessPoolExecutor(processes) as pool:
        for number, failed in enumerate(pool.map(_first_failure, chunks), 1):
            if failed is not None:
                pool.shutdown(cancel_futures=True)
                return _report(failed)
            if number % 50 == 0:
                print(f"{number * CHUNK} stories have ended well", flush=True)
    print(f"all {len(seeds)} stories have ended well, in {time.monotonic() - began_s:.0f} s")
    return 0


def _first_failure(seeds: range) -> Told | None:
    return next((told for told in map(tell, seeds) if told.problems), None)


def _report(told: Told) -> int:
    if not told.problems:
        print(f"seed {told.seed}: {len(told.operations)} operations, and all is well")
        return 0
    print(f"seed {told.seed} did not end well:", *told.problems, sep="\n  ")
    print(f"Rerun: {rerun_command(told.seed)}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
