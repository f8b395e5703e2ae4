"""The tumbling windows of windows.py by Quix Streams, whose interpreter runs this: see its `--quix`.

    python quix_windows.py BOOTSTRAP SOURCE TARGET COUNT STATE_DIRECTORY

Prints the seconds it took, and those in which the last three quarters of the events were taken in.
"""

import sys
import time

from quixstreams import Application  # type: ignore[import-not-found]  # it is not installed beside Headrace
from quixstreams.dataframe.windows import Count, Sum  # type: ignore[import-not-found]  # likewise

MINUTE_MS = 60_000


def main() -> None:
    """Run until so many events were taken in."""
    bootstrap, source, target, count, state_dir = sys.argv[1:]
    done, steady_s = 0, 0.0

    def processed(_topic: str, _partition: int, _offset: int) -> None:
        nonlocal done, steady_s
        done += 1
        if done == int(count) // 4:
            steady_s = time.perf_counter()
        if done == int(count):
            app.stop()

    app = Application(
        broker_address=bootstrap,
        consumer_group=target,
        auto_offset_reset="earliest",
        state_dir=state_dir,
        on_message_processed=processed,
        loglevel="WARNING",
    )
    events = app.topic(source, timestamp_extractor=lambda value, *_: value["at_ms"])
    windows = (
        app.dataframe(events)
        .tumbling_window(MINUTE_MS, grace_ms=2 * MINUTE_MS)
        .agg(count=Count(), total=Sum("cents"))
        .final()
    )
    windows.apply(lambda value, key, *_: {"card": key.decode(), **value}, metadata=True).to_topic(
        app.topic(target)
    )
    begin_s = time.perf_counter()
    app.run()
    end_s = time.perf_counter()
    print(end_s - begin_s, end_s - steady_s)


if __name__ == "__main__":
    main()
