"""`headrace setup`: have Java and the connector jars, once, so that pipelines can run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.output import say
from headrace.config import StreamsConfig
from headrace.errors import HeadraceError, SetupError

if TYPE_CHECKING:
    from headrace.streams.java import Java


def setup(
    install: Annotated[bool, typer.Option(help="Install Java with apt-get where that is possible.")] = True,
    fast_start: Annotated[
        bool | None,
        typer.Option(
            "--fast-start/--no-fast-start",
            help="Archive Spark's classes in the cache (200 MB, once), so that pipelines start faster.",
            show_default="where it is possible",
        ),
    ] = None,
) -> None:
    """Prepare this machine for pipelines: find or install Java 17+, fetch Spark's Kafka connector."""
    # Spark is an extra: only the commands that need it may import what needs it.
    from headrace.streams.jars import CHECKPOINT_JAR, find_checkpoint_jar, resolve_jars  # noqa: PLC0415
    from headrace.streams.java import find_java, install_java  # noqa: PLC0415

    config = StreamsConfig()
    if config.jars_dir is not None:
        # What the user has put together is looked at before anything is installed.
        resolve_jars(config.cache_dir, config.jars_dir)
    try:
        java = find_java()
    except SetupError:
        if not install:
            raise
        java = install_java()
    jars = resolve_jars(config.cache_dir, config.jars_dir)
    if config.jars_dir is None:
        resolve_jars(config.cache_dir, None, jars=(CHECKPOINT_JAR,))
    elif find_checkpoint_jar(config.cache_dir, config.jars_dir) is None:
        say(f"setup: {config.jars_dir} lacks {CHECKPOINT_JAR.filename}: batches work without it, but slower")
    if fast_start is not False:
        _archive_classes(config, java, must=fast_start is True)
    say(f"setup: Java {java.version} at {java.executable}; {len(jars)} connector jars in {jars[0].parent}")


def _archive_classes(config: StreamsConfig, java: Java, *, must: bool) -> None:
    """Have an archive of Spark's classes, made where there is none yet."""
    from headrace.streams.class_archive import ensure_archive  # noqa: PLC0415  # see above
    from headrace.streams.session import class_archive_digest  # noqa: PLC0415  # likewise

    try:
        ensure_archive(config.cache_dir, class_archive_digest(config, java), _train, _say_waiting)
    except HeadraceError as error:
        if must:
            raise
        say(f"setup: {error}")


def _say_waiting() -> None:
    say("setup: another process is archiving Spark's classes; waiting for it")


def _train(work: Path, made: Path) -> None:
    """Let a pipeline run once, on a broker of its own."""
    from headrace.broker import Broker  # noqa: PLC0415  # only this needs it
    from headrace.streams.class_archive import train_in_child  # noqa: PLC0415  # see above

    say(f"setup: archiving Spark's classes, once, in {work.parent}, so that pipelines start faster")
    with Broker() as broker:
        train_in_child(broker.bootstrap, work, made)
