"""Draw the pictures of docs/concepts from the examples on those pages: `pictures_of_time.py docs/images`.

They are made by what `headrace explain` draws with, from the logic that pipelines run.
"""

from __future__ import annotations

import sys
from pathlib import Path

from headrace.streams.time.policies import Policy, bounded
from headrace.streams.timeline.example import Event, example
from headrace.streams.timeline.picture import picture_of
from headrace.streams.timeline.svg import draw_svg
from headrace.streams.timeline.timeline import Timeline
from headrace.streams.windows.aligned import AlignedWindows
from headrace.streams.windows.exact import Count
from headrace.streams.windows.kinds import tumbling
from headrace.streams.windows.late import LatePolicy, side_output, update
from headrace.streams.windows.triggers import OnTime, Trigger, early


def minutes(watermark: Policy, late: LatePolicy, trigger: Trigger | None = None) -> AlignedWindows:
    """Windows of a minute."""
    return AlignedWindows(
        by=("key",),
        time="at",
        kind=tumbling("1 minute"),
        aggregates=(Count(name="count"),),
        watermark=watermark,
        late=late,
        trigger=trigger or OnTime(),
    )


def two_times() -> Timeline:
    """docs/concepts/time.md: `c` is written last, and counts in the minute of `a` and `b`."""
    windows = minutes(bounded("10 seconds"), update(within="5 minutes"))
    return example(
        windows,
        [
            Event("phone", "10:00:01", "10:00:02", batch=0),
            Event("phone", "10:00:02", "10:00:03", batch=0),
            Event("phone", "10:04:10", "10:04:10", batch=1),
            Event("phone", "10:04:11", "10:04:11", batch=2),
            Event("phone", "10:00:58", "10:04:12", batch=3),
        ],
    )


def watermark() -> Timeline:
    """docs/concepts/watermarks.md: `f` is behind the watermark."""
    windows = minutes(bounded("2 minutes"), side_output("payments.late"))
    happened = ["10:01:00", "10:02:00", "10:03:00", "10:04:00", "10:01:00", "10:05:00"]
    written = ["10:01:05", "10:02:05", "10:03:05", "10:04:05", "10:04:35", "10:05:05"]
    times = zip(happened, written, strict=True)
    return example(windows, [Event("card", *each, batch=batch) for batch, each in enumerate(times)])


def partitions() -> Timeline:
    """docs/concepts/watermarks.md: of two partitions, one falls silent, and comes back."""
    windows = minutes(bounded("10 seconds", idle_after="1 minute"), side_output("payments.late"))
    return example(
        windows,
        [
            Event("p0", "10:01:40", "10:01:40", batch=0),
            Event("p1", "10:01:30", "10:01:30", batch=0, partition=1),
            Event("p0", "10:02:30", "10:02:30", batch=1),
            Event("p0", "10:02:31", "10:02:31", batch=2),
            Event("p0", "10:02:40", "10:02:40", batch=3),
            Event("p1", "10:01:35", "10:02:40", batch=3, partition=1),
        ],
    )


def late_data() -> Timeline:
    """docs/concepts/late-data.md: a window fires early, on time and late, and then is closed."""
    late = update(within="2 minutes", then=side_output("payments.late"))
    windows = minutes(bounded("10 seconds"), late, early(rows=1))
    return example(
        windows,
        [
            Event("ann", "10:00:05", "10:00:07", batch=0),
            Event("ann", "10:00:50", "10:00:52", batch=1),
            Event("ann", "10:01:12", "10:01:14", batch=2),
            Event("ann", "10:00:40", "10:01:30", batch=3),
            Event("ann", "10:01:45", "10:01:46", batch=3),
            Event("ann", "10:02:25", "10:02:27", batch=4),
            Event("ann", "10:03:15", "10:03:17", batch=5),
            Event("ann", "10:00:30", "10:03:40", batch=6),
            Event("ann", "10:03:50", "10:03:52", batch=6),
        ],
    )


PICTURES = {
    "time": ("Event time against log time", two_times),
    "watermark": ("A watermark of two minutes", watermark),
    "partitions": ("A partition falls silent, and comes back", partitions),
    "late-data": ("The life of windows", late_data),
}


def main(directory: Path) -> None:
    """Write all pictures."""
    for name, (title, tell) in PICTURES.items():
        picture = picture_of(tell(), title=title)
        assert picture is not None, "all examples have events"
        (directory / f"{name}.svg").write_text(draw_svg(picture))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
