"""The children that make up a demo, and the directory they work in."""

from __future__ import annotations

import fcntl
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Final

from headrace.cli.demo_recipe import FILE_NAME as RECIPE_NAME
from headrace.config import Address, CaptureConfig, environment_with
from headrace.errors import ConfigError, DataDirectoryInUse, FaultError
from headrace.supervisor import ChildSpec

_SOURCE_EXAMPLES: Final = Path(__file__).parents[3] / "examples"
_SPARK_START_S_MAX: Final = 300.0
_PIPELINE_RESTART_COUNT_MAX: Final = 1_000
_PREPARE_S_MAX: Final = 120.0
_SNAPSHOT_S_MAX: Final = 300.0
_GENERATOR_START_S_MAX: Final = 120.0


def example_dir(name: str) -> Path:
    """Where an example lies: inside the installed package, or beside it in a source checkout."""
    packaged = Path(str(files("headrace"))) / "examples"
    root = packaged if packaged.is_dir() else _SOURCE_EXAMPLES
    known = sorted(path.parent.name for path in root.glob(f"*/{RECIPE_NAME}"))
    if name not in known:
        raise ConfigError(f"there is no example {name!r}: choose one of {', '.join(known)}")
    return root / name


@contextmanager
def demo_directory(data_dir: Path, name: str, *, keep_data: bool) -> Iterator[Path]:
    """A directory for one demo at a time, emptied first unless the data are to be kept."""
    root = data_dir / "demo"
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (root / f"{name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise DataDirectoryInUse(
                f"the demo {name} is running already in {root}: stop it first, or run this one in another "
                "directory with HEADRACE_DATA"
            ) from error
        directory = root / name
        if not keep_data:
            _remove(directory)
        directory.mkdir(exist_ok=True, mode=0o700)
        yield directory


def _remove(directory: Path) -> None:
    """Remove what the last run has left, and the database that root keeps elsewhere for it."""
    # Only this needs to know of it.
    from headrace.postgres.home import elsewhere  # noqa: PLC0415

    for path in (directory, elsewhere(directory)):
        if path.exists():
            shutil.rmtree(path)


def broker_child(listen: Address, data_dir: Path, amqp_listen: Address | None = None) -> ChildSpec:
    """The broker, with work queues where they are wanted."""
    queues = () if amqp_listen is None else ("--amqp-listen", str(amqp_listen))
    return ChildSpec(
        name="broker",
        arguments=("-m", "headrace", "broker", "--listen", str(listen), *queues, "--data", str(data_dir)),
        ready=re.compile(r"listening on (\S+),"),
        ready_within_s=30,
    )


def postgres_child(listen: Address, data_dir: Path) -> ChildSpec:
    """The embedded PostgreSQL; what it tells is its DSN."""
    return ChildSpec(
        name="postgres",
        arguments=("-m", "headrace", "postgres", "--listen", str(listen), "--data", str(data_dir)),
        ready=re.compile(r"PostgreSQL is listening: (.+)$"),
        ready_within_s=180,
        stop_within_s=40,
    )


def redis_child(listen: Address, data_dir: Path) -> ChildSpec:
    """The embedded Redis; what it tells is where its password is."""
    return ChildSpec(
        name="redis",
        arguments=("-m", "headrace", "redis", "--listen", str(listen), "--data", str(data_dir)),
        ready=re.compile(r"Redis is listening on \S+, its password is in (.+)$"),
        ready_within_s=60,
        stop_within_s=40,
    )


def add_capture(config: CaptureConfig) -> None:
    """Write down what is captured. One that was written down before is so anew: addresses may be others."""
    # What it needs is an extra: only a demo that has a capture may import it.
    from headrace.cdc.captures import FILE_NAME  # noqa: PLC0415
    from headrace.cli.capture_runner import check, save  # noqa: PLC0415

    (config.directory / FILE_NAME).unlink(missing_ok=True)
    check(config)
    save(config)


def capture_child(name: str, data_dir: Path) -> ChildSpec:
    """A capture; what it tells is where it publishes, once all rows that were there are published."""
    return ChildSpec(
        name="capture",
        arguments=("-m", "headrace", "capture", "start", name, "--data", str(data_dir)),
        ready=re.compile(r"publishing changes to (\S+?),?(?: |$)"),
        ready_within_s=_SNAPSHOT_S_MAX,
    )


def console_child(
    listen: Address,
    bootstrap: str,
    directory: Path,
    view: Path | None = None,
    *,
    events: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> ChildSpec:
    """The page; the address that it tells has the token that lets a browser act.

    The token is made here, once, so that a page that was opened may act also when the child was restarted.
    """
    # Only who starts a console needs its parts.
    from headrace.console.security import new_token  # noqa: PLC0415

    return ChildSpec(
        name="console",
        arguments=(
            *("-m", "headrace", "console", "--listen", str(listen), "--bootstrap", bootstrap),
            *("--data", str(directory), *(("--view", str(view)) if view else ())),
            *(("--events", str(events)) if events else ()),
        ),
        environment={"HEADRACE_CONSOLE_TOKEN": new_token(), **(environment or {})},
        ready=re.compile(r"serving on (\S+)"),
        ready_within_s=30,
    )


def pipeline_child(
    file: Path,
    bootstrap: str,
    directory: Path,
    *,
    realtime: bool,
    batch_s: int = 300,
    options: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> ChildSpec:
    """Spark, with the pipelines of a file, and further options of `headrace run`."""
    mode = ("--realtime", "--batch", str(batch_s)) if realtime else ()
    return ChildSpec(
        name="pipeline",
        arguments=(
            *("-m", "headrace", "run", str(file), *mode, *options),
            # The demo restarts it by itself, as it does the others.
            *("--bootstrap", bootstrap, "--data", str(directory), "--restarts", "0"),
        ),
        environment=environment or {},
        ready=re.compile(r"^running (.+)$"),
        ready_within_s=_SPARK_START_S_MAX,
        # The page has a button that kills it, and may be pressed as often as one likes.
        restart_count_max=_PIPELINE_RESTART_COUNT_MAX,
    )


def prepare(generator: Path, options: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
    """Have a generator make what must be there before all else: topics as the example wants them, tables."""
    command = [sys.executable, str(generator), *options]
    try:
        subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=True,
            timeout=_PREPARE_S_MAX,
            env=environment_with(environment or {}),
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        told = str(error.stderr or error).strip()
        raise FaultError(f"the demo could not be prepared: {told}") from error


def tell_rate(view_file: Path, bootstrap: str, rate: int) -> None:
    """Let the page's slider of the rate stand where the demo begins, and undo what an earlier run was told.

    A rate beyond the slider's range is the generator's alone.
    """
    # Only the demo needs the console's parts here.
    from headrace.config import ConsoleConfig  # noqa: PLC0415
    from headrace.console.actions import Actions  # noqa: PLC0415
    from headrace.console.catalog import KafkaCatalog  # noqa: PLC0415
    from headrace.console.feed import client_settings  # noqa: PLC0415
    from headrace.console.view import read_view  # noqa: PLC0415

    view = read_view(view_file)
    if not any(control.name == "rate" and control.allows(rate) for control in view.controls):
        return
    settings = client_settings(ConsoleConfig(bootstrap=bootstrap))
    actions = Actions(ConsoleConfig(bootstrap=bootstrap), view, settings)
    actions.recall(KafkaCatalog(settings))
    actions.move("rate", rate)


def generator_child(
    generator: Path,
    options: Sequence[str],
    *,
    rate: int,
    seed: int,
    environment: Mapping[str, str] | None = None,
) -> ChildSpec:
    """Live data, by a program that knows `--rate` and `--seed`, and these options."""
    return ChildSpec(
        name="generator",
        arguments=(str(generator), *options, "--rate", str(rate), "--seed", str(seed)),
        environment=environment or {},
        ready=re.compile(r"^producing (.+)$"),
        ready_within_s=_GENERATOR_START_S_MAX,
    )
