"""`headrace explain`: what a pipeline does with time, in words and pictures."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from headrace.cli.client import client_options
from headrace.cli.options import AsJson, Bootstrap, DataDir, SparkConf, spark_options
from headrace.cli.output import announce, print_json, print_rows, say
from headrace.cli.replay import parse_bound, the_pipeline
from headrace.config import StreamsConfig
from headrace.errors import ConfigError

if TYPE_CHECKING:
    from headrace.streams.explain import Explanation
    from headrace.streams.timeline.timeline import Key, Timeline

WINDOWS_SHOWN: Final = 20
"""How many windows are listed at most; JSON and the page have more."""
LATE_SHOWN: Final = 20
_RECORD_PARTS: Final = 3


def explain(
    target: Annotated[str, typer.Argument(metavar="FILE:PIPELINE", help="Where the pipeline is.")],
    bootstrap: Bootstrap,
    data: DataDir,
    begin: Annotated[
        str | None,
        typer.Option("--from", help="A moment, such as 2026-11-16T09:30:00Z or 7d (ago), or 0:17,1:20."),
    ] = None,
    finish: Annotated[str | None, typer.Option("--to", help="Up to there; without, up to the end.")] = None,
    limit: Annotated[
        int, typer.Option(min=1, help="How many offsets of the log are looked at, at most: the last ones.")
    ] = 10_000,
    key: Annotated[
        list[str] | None,
        typer.Option(metavar="VALUE", help="Only windows of this key; once for each of its columns."),
    ] = None,
    late: Annotated[
        bool, typer.Option("--late", help="List the late rows: what made them late, and where they went.")
    ] = False,
    record: Annotated[
        str | None,
        typer.Option(metavar="TOPIC/PARTITION/OFFSET", help="Tell what became of one record."),
    ] = None,
    svg: Annotated[Path | None, typer.Option(help="Write the picture to this file.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page with all of it to this file.")] = None,
    spark_conf: SparkConf = None,
    as_json: AsJson = False,
) -> None:
    """Show what a pipeline does with time: its windows, the watermark, and what became of late rows.

    Reads the part of the log that its last micro-batches had, and steps through it once more. Changes
    nothing, and may be done while the pipeline runs. Before its first run, micro-batches are assumed.
    """
    # Spark is an extra: only the commands that need it may import what needs it.
    from headrace.streams.explain import Asked  # noqa: PLC0415
    from headrace.streams.explain import explain as explain_pipeline  # noqa: PLC0415

    place = None if record is None else _place(record)
    pipeline = the_pipeline(target)
    config = StreamsConfig(
        bootstrap=bootstrap,
        data_dir=data,
        client_options=client_options(),
        spark_options=spark_options(spark_conf),
    )
    asked = Asked(begin=parse_bound(begin), finish=parse_bound(finish), limit=limit)
    found = explain_pipeline(pipeline, config, asked=asked, on_step=lambda line: say(f"{line} ..."))
    chosen = _key(found, key)
    _write_files(found, chosen, svg, html)
    if place is not None:
        _print_record(found, place, as_json=as_json)
    elif as_json:
        _print_json(found, chosen)
    elif late:
        _print_late(found, chosen, limit=None)
    else:
        _print(found, chosen)
    for note in _notes(found):
        say(f"note: {note}")


def _place(text: str) -> tuple[str, int, int]:
    parts = text.rsplit("/", 2)
    if len(parts) != _RECORD_PARTS or not (parts[1].isdecimal() and parts[2].isdecimal()):
        raise ConfigError(f"--record {text}: write TOPIC/PARTITION/OFFSET, such as payments/0/17")
    return parts[0], int(parts[1]), int(parts[2])


def _key(found: Explanation, given: Sequence[str] | None) -> Key | None:
    """The key that was asked for; refuse one that nothing has."""
    if not given:
        return None
    key = tuple(given)
    keys = {row.key for timeline in found.timelines for row in timeline.rows}
    if key not in keys:
        some = ", ".join(sorted({" ".join(map(str, each)) for each in keys})[:5])
        raise ConfigError(
            f"no row has the key {' '.join(key)} among those that are looked at"
            + (f"; there are {some}{' and others' if len(keys) > 5 else ''}" if some else "")
        )
    return key


def _write_files(found: Explanation, key: Key | None, svg: Path | None, html: Path | None) -> None:
    from headrace.streams.timeline.page import draw_page  # noqa: PLC0415  # see above
    from headrace.streams.timeline.svg import draw_svg  # noqa: PLC0415  # see above

    if html is not None:
        _write(html, draw_page(found.pipeline, (*found.words, *found.notes), found.timelines, key=key))
    if svg is not None:
        pictures = list(_pictures(found, key))
        if not pictures:
            raise ConfigError(f"there is no picture of {found.pipeline}: no row with an event time was found")
        for number, picture in enumerate(pictures):
            # The second operator of a pipeline has a file of its own.
            path = svg if number == 0 else svg.with_stem(f"{svg.stem}-{number + 1}")
            _write(path, draw_svg(picture))


def _pictures(found: Explanation, key: Key | None) -> Iterator[Any]:
    from headrace.streams.timeline.picture import picture_of  # noqa: PLC0415  # see above

    for timeline in found.timelines:
        picture = picture_of(timeline, key=key, title=f"{found.pipeline}, {timeline.operator}")
        if picture is not None:
            yield picture


def _write(path: Path, content: str) -> None:
    try:
        path.write_text(content, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path} can't be written: {error.strerror or error}") from error
    say(f"written to {path}")


def _print(found: Explanation, key: Key | None) -> None:
    announce(found.pipeline)
    for line in found.words:
        announce(f"  {line}")
    for timeline in found.timelines:
        _print_timeline(timeline, key)
    _print_late(found, key, limit=LATE_SHOWN)


def _print_timeline(timeline: Timeline, key: Key | None) -> None:
    from headrace.streams.timeline.picture import picture_of  # noqa: PLC0415  # see above
    from headrace.streams.timeline.tables import WINDOW_COLUMNS, window_rows  # noqa: PLC0415  # see above
    from headrace.streams.timeline.text import LEGEND, draw  # noqa: PLC0415  # see above

    if not timeline.rows:
        announce(f"\n{timeline.operator}: no row came to it in that part of the log")
        return
    first, last = timeline.moments[0].batch, timeline.moments[-1].batch
    announce(f"\n{timeline.operator}: {len(timeline.rows):,} rows in batches {first} to {last}")
    picture = picture_of(timeline, key=key)
    if picture is not None:
        for line in (*draw(picture, width=shutil.get_terminal_size((100, 24)).columns), LEGEND):
            announce(line)
        for note in picture.notes:
            say(f"note: {note}")
    windows = list(window_rows(timeline, key))
    if windows:
        announce("")
        print_rows(windows[-WINDOWS_SHOWN:], columns=WINDOW_COLUMNS, as_json=False)
    if len(windows) > WINDOWS_SHOWN:
        told = f"the last {WINDOWS_SHOWN} of {len(windows):,} windows are listed"
        say(f"note: {told}; --json and --html have more")


def _print_late(found: Explanation, key: Key | None, *, limit: int | None) -> None:
    from headrace.streams.timeline.words import late_story, rows_words  # noqa: PLC0415  # see above

    for timeline in found.timelines:
        rows = [row for row in timeline.late_rows() if key is None or row.key == key]
        shown = rows if limit is None else rows[-limit:]
        more = (
            f", of which the last {len(shown)} are listed (--late lists all)"
            if len(shown) < len(rows)
            else ""
        )
        announce(f"\n{timeline.operator}: {rows_words(len(rows))} late{more}")
        for row in shown:
            first, *others = late_story(timeline, row)
            announce(f"  {first}")
            for line in others:
                announce(f"    {line}")


def _print_record(found: Explanation, place: tuple[str, int, int], *, as_json: bool) -> None:
    from headrace.streams.timeline.tables import row_json  # noqa: PLC0415  # see above
    from headrace.streams.timeline.words import row_story  # noqa: PLC0415  # see above

    rows = found.find(*place)
    if not rows:
        name = "/".join(map(str, place))
        raise ConfigError(
            f"{name} is none of the rows that came to {found.pipeline} in that part of the log: a filter of "
            "the pipeline left it out, it is a dead letter, it says only how far its source is, "
            "or it lies outside (--from, --to and --limit)"
        )
    if as_json:
        print_json(
            [
                {
                    "operator": timeline.operator,
                    **row_json(timeline, row),
                    "story": list(row_story(timeline, row)),
                }
                for timeline, row in rows
            ]
        )
        return
    for timeline, row in rows:
        announce(f"{timeline.operator}:")
        for line in row_story(timeline, row):
            announce(f"  {line}")


def _print_json(found: Explanation, key: Key | None) -> None:
    from headrace.streams.timeline.tables import timeline_json  # noqa: PLC0415  # see above

    print_json(
        {
            "pipeline": found.pipeline,
            "words": list(found.words),
            "notes": list(found.notes),
            "operators": [timeline_json(timeline, key) for timeline in found.timelines],
        }
    )


def _notes(found: Explanation) -> Iterator[str]:
    yield from found.notes
    for timeline in found.timelines:
        yield from timeline.notes
