"""What is known of tasks that run on the driver's machine."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def local_directory(session: SparkSession) -> Path | None:
    """Where tasks may leave files for the driver until Spark ends; None where they run on other machines."""
    if not (session.sparkContext.master or "").startswith("local"):
        return None
    return Path(session.conf.get("spark.local.dir", tempfile.gettempdir()) or "") / "handed"


def tasks_at_once(master: str) -> int | None:
    """How many tasks make use of the processors, where Spark runs in the driver; None on a cluster.

    There may be more slots: those of real-time mode, and of `local[64]`, share the processors that there are.
    """
    found = re.fullmatch(r"local(?:\[(\d+|\*)(?:,.*)?\])?", master)
    if found is None:
        return None
    processors = os.cpu_count() or 1
    return processors if found[1] == "*" else min(int(found[1] or "1"), processors)
