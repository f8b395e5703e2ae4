"""Whether tasks run on the driver's machine, and where they can leave files for it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run_here(session: SparkSession) -> bool:
    """Whether tasks run in the driver's own Java process, and not on other machines."""
    return (session.sparkContext.master or "").startswith("local")


def local_directory(session: SparkSession) -> Path | None:
    """Where tasks may leave files for the driver until Spark ends; None where they run elsewhere."""
    if not run_here(session):
        return None
    return Path(session.conf.get("spark.local.dir", tempfile.gettempdir()) or "") / "handed"
