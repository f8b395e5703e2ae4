"""The children that make up a demo, and the directory they work in."""

from __future__ import annotations

import fcntl
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Final

from headrace.config import Address
from headrace.errors import ConfigError, DataDirectoryInUse, FaultError
from headrace.supervisor import ChildSpec

_SOURCE_EXAMPLES: Final = Path(__file__).parents[3] / "examples"
_SPARK_START_S_MAX: Final = 300.0
_PIPELINE_RESTART_COUNT_MAX: Final = 1_000
_TOPICS_S_MAX: Final = 60.0


def example_dir(name: str) -> Path:
    """Where an example lies: inside the installed package, or beside it in a source checkout."""
    packaged = Path(str(files("headrace"))) / "examples"
    root = packaged if packaged.is_dir() else _SOURCE_EXAMPLES
    known = sorted(path.parent.name for path in root.glob("*/pipeline.py"))
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
        if directory.exists() and not keep_data:
            shutil.rmtree(directory)
        directory.mkdir(exist_ok=True, mode=0o700)
        yield directory


def broker_child(listen: Address, data_dir: Path) -> ChildSpec:
    """The broker."""
    return ChildSpec(
        name="broker",
        arguments=("-m", "headrace", "broker", "--listen", str(listen), "--data", str(data_dir)),
        ready=re.compile(r"listening on (\S+),"),
        ready_within_s=30,
    )


def console_child(listen: Address, bootstrap: str, directory: Path, view: Path | None = None) -> ChildSpec:
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
        ),
        environment={"HEADRACE_CONSOLE_TOKEN": new_token()},
        ready=re.compile(r"serving on (\S+)"),
        ready_within_s=30,
    )


def pipeline_child(
    example: Path, bootstrap: str, directory: Path, *, realtime: bool, batch_s: int = 300
) -> ChildSpec:
    """Spark, with the example's pipelines."""
    mode = ("--realtime", "--batch", str(batch_s)) if realtime else ()
    return ChildSpec(
        name="pipeline",
        arguments=(
            *("-m", "headrace", "run", str(example / "pipeline.py"), *mode),
            # The demo restarts it by itself, as it does the others.
            *("--bootstrap", bootstrap, "--data", str(directory), "--restarts", "0"),
        ),
        ready=re.compile(r"^running (.+)$"),
        ready_within_s=_SPARK_START_S_MAX,
        # The page has a button that kills it, and may be pressed as often as one likes.
        restart_count_max=_PIPELINE_RESTART_COUNT_MAX,
    )


def create_topics(example: Path, bootstrap: str) -> None:
    """Create the example's topics as it wants them, before a pipeline creates them as pipelines do."""
    command = [sys.executable, str(example / "generate.py"), "--bootstrap", bootstrap, "--topics-only"]
    try:
        subprocess.run(command, capture_output=True, text=True, check=True, timeout=_TOPICS_S_MAX)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        told = str(error.stderr or error).strip()
        raise FaultError(f"the topics of the demo could not be created: {told}") from error


def tell_rate(example: Path, bootstrap: str, rate: int) -> None:
    """Let the page's slider of the rate stand where the demo begins, and undo what an earlier run was told.

    A rate beyond the slider's range is the generator's alone.
    """
    # Only the demo needs the console's parts here.
    from headrace.config import ConsoleConfig  # noqa: PLC0415
    from headrace.console.actions import Actions  # noqa: PLC0415
    from headrace.console.catalog import KafkaCatalog  # noqa: PLC0415
    from headrace.console.feed import client_settings  # noqa: PLC0415
    from headrace.console.view import read_view  # noqa: PLC0415

    view = read_view(example / "view.toml")
    if not any(control.name == "rate" and control.allows(rate) for control in view.controls):
        return
    settings = client_settings(ConsoleConfig(bootstrap=bootstrap))
    actions = Actions(ConsoleConfig(bootstrap=bootstrap), view, settings)
    actions.recall(KafkaCatalog(settings))
    actions.move("rate", rate)


def generator_child(
    example: Path, bootstrap: str, *, rate: int, seed: int, more: tuple[str, ...] = ()
) -> ChildSpec:
    """Live data. `more` are options that only this example's generator knows."""
    return ChildSpec(
        name="generator",
        arguments=(
            *(str(example / "generate.py"), "--bootstrap", bootstrap),
            *("--rate", str(rate), "--seed", str(seed), *more),
        ),
        ready=re.compile(r"^producing (.+)$"),
        ready_within_s=30,
    )
