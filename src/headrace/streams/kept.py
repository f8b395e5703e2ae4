"""Small files of JSON in which something is kept for the next process: whole, or not there at all."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from headrace.errors import ConfigError

T = TypeVar("T")


def read_kept(path: Path, parse: Callable[[Any], T], *, problem: str, advice: str) -> T | None:
    """What is kept; None if nothing is. `problem` and `advice` are for a file that can't be understood."""
    try:
        return parse(json.loads(path.read_text()))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
        raise ConfigError(f"{path} {problem} ({type(error).__name__}: {error}): {advice}") from error


def write_kept(path: Path, content: Any) -> None:
    """Keep it, in place of what was kept before. It outlives a crash of the machine."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    new = path.with_name(f"{path.name}~")
    with new.open("w") as file:
        json.dump(content, file)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
