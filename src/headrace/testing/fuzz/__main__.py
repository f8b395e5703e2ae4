"""Try many cases from the command line, until one of them fails."""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from os import cpu_count
from random import SystemRandom

from headrace.testing.fuzz import queue_checks
from headrace.testing.fuzz.checks import (
    all_versions,
    check_decoder,
    check_frame_reader,
    check_garbage,
    check_handlers,
    check_memory,
)


def main() -> int:
    """Try what was asked for; raises what the first failure raises."""
    parser = argparse.ArgumentParser(
        prog="python -m headrace.testing.fuzz",
        description="Send bytes that no client sends to the frame reader, all decoders and all handlers.",
    )
    parser.add_argument("--rounds", type=int, default=100, help="how often to try everything (default 100)")
    parser.add_argument("--start", type=int, help="the seed of the first round (default: a random one)")
    parser.add_argument("--processes", type=int, default=cpu_count() or 1, help="default: one for each core")
    options = parser.parse_args()
    start = SystemRandom().randrange(10**9) if options.start is None else options.start
    print(f"{options.rounds} rounds, from seed {start} on, in {options.processes} processes", flush=True)
    began_s = time.monotonic()
    with ProcessPoolExecutor(options.processes) as pool:
        try:
            for _ in pool.map(_try_everything, range(start, start + options.rounds)):
                pass
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    print(f"all is well, after {time.monotonic() - began_s:.0f} s")
    return 0


def _try_everything(seed: int) -> None:
    try:
        check_frame_reader(seed)
        check_garbage(seed)
        for api_key, version in all_versions():
            check_decoder(api_key, version, seed)
            check_memory(api_key, version, seed)
        check_handlers(seed, rounds=2)
        queue_checks.check_methods(seed)
        queue_checks.check_garbage(seed)
    except Exception as error:
        error.add_note(f"Rerun: python -m headrace.testing.fuzz --rounds 1 --start {seed}")
        raise


if __name__ == "__main__":
    sys.exit(main())
