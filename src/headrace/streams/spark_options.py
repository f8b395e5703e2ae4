"""Settings of Spark that a user adds to those of Headrace, or is told why not. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from headrace.errors import ConfigError

JOINED: Final = {
    "spark.jars": ",",
    "spark.driver.extraClassPath": ":",
    "spark.driver.extraJavaOptions": " ",
}
"""What a user gives is put behind what Headrace gives, with this between them."""
REPLACED: Final = frozenset(
    {
        "spark.default.parallelism",
        "spark.python.unix.domain.socket.dir",
        "spark.python.unix.domain.socket.enabled",
        "spark.shuffle.streaming.networkBufferMaxWaitTimeMs",
        "spark.ui.enabled",
        "spark.ui.showConsoleProgress",
    }
)
"""What a user gives counts."""
_STATE: Final = "a checkpoint could then go on in one of micro-batches and real-time mode only"
REASONS: Final = {
    "spark.master": "name the cluster with --master",
    "spark.app.name": "it is the command's",
    "spark.sql.shuffle.partitions": "use --shuffle-partitions, which is kept to by all parts",
    "spark.sql.session.timeZone": "times are read and written in UTC, so that they mean the same everywhere",
    "spark.sql.streaming.stateStore.providerClass": _STATE,
    "spark.sql.streaming.stateStore.checkpointFormatVersion": _STATE,
    "spark.local.dir": "it lies below --data, and is removed at the end",
    "spark.driver.host": "nobody outside this machine has any business with a driver that runs on it alone",
    "spark.driver.bindAddress": "nobody outside this machine has any business with a driver that runs on it "
    "alone",
}


def with_options_of_user(own: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """All settings; raise where one is given that would break what Headrace relies on."""
    options = dict(own)
    for key, value in given.items():
        if key in REASONS and (key in own or key == "spark.app.name"):
            raise ConfigError(f"{key} can't be set: {REASONS[key]}")
        if key in own and key in JOINED:
            options[key] = f"{own[key]}{JOINED[key]}{value}"
        elif key in own and key not in REPLACED:
            raise ConfigError(f"{key} can't be set: Headrace sets it to {own[key]}, and relies on it")
        else:
            options[key] = value
    return options
