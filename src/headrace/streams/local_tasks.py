"""Where tasks can leave files for the driver, if they run on its machine."""

from __future__ import annotations

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
