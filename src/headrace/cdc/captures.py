"""The captures of a data directory: what `headrace capture add` has written down.

DATA/captures/<name>/capture.json    the settings; mode 0600, as a DSN may hold a password
                     status.json     what it does: see status.py
                     paused          while it is to pause
                     requests/       snapshots that were asked for
                     spill/          large transactions, while they are open
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from headrace.config import CaptureConfig
from headrace.errors import ConfigError

FILE_NAME: Final = "capture.json"
_NOT_KEPT: Final = {"data_dir", "client_options"}
"""Where the file is says the one; the other is given to the command, as to all that talk to a broker."""


def save_capture(config: CaptureConfig) -> None:
    """Write a new capture's settings down."""
    path = config.directory / FILE_NAME
    if path.exists():
        raise ConfigError(
            f"there is a capture {config.name} already: remove it first (headrace capture remove "
            f"{config.name}), or choose another name"
        )
    for name in names_of(config.data_dir):
        other = load_capture(config.data_dir, name)
        if (other.bootstrap, other.prefix) == (config.bootstrap, config.prefix):
            raise ConfigError(
                f"capture {name} publishes to {config.prefix}.* already, and each says there how far it is: "
                "choose another --prefix"
            )
    config.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    kept = {each.name: getattr(config, each.name) for each in fields(config) if each.name not in _NOT_KEPT}
    unfinished = config.directory / f"{FILE_NAME}~"
    unfinished.unlink(missing_ok=True)
    with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump(kept, file, indent=2, ensure_ascii=False)
    unfinished.replace(path)


def load_capture(data_dir: Path, name: str, client_options: Mapping[str, str] | None = None) -> CaptureConfig:
    """Read a capture's settings."""
    path = data_dir / "captures" / name / FILE_NAME
    try:
        told: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        known = ", ".join(names_of(data_dir)) or "none"
        raise ConfigError(
            f"there is no capture {name} in {data_dir} (there is {known}): `headrace capture add` makes one, "
            "--data says where"
        ) from None
    except ValueError as error:
        raise ConfigError(f"{path} can't be read: {error}. Remove the capture, and add it anew") from error
    lists = {each.name for each in fields(CaptureConfig) if str(each.type).startswith("tuple")}
    values: dict[str, Any] = {key: tuple(value) if key in lists else value for key, value in told.items()}
    try:
        return CaptureConfig(**values, data_dir=data_dir, client_options=client_options or {})
    except TypeError as error:
        raise ConfigError(
            f"{path} is of another version: {error}. Remove the capture, and add it anew"
        ) from error


def names_of(data_dir: Path) -> list[str]:
    """The captures of a data directory."""
    return sorted(path.parent.name for path in (data_dir / "captures").glob(f"*/{FILE_NAME}"))


def delete_files(config: CaptureConfig) -> None:
    """Forget a capture."""
    shutil.rmtree(config.directory, ignore_errors=True)
