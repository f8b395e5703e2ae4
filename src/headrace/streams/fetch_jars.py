"""`python -m headrace.streams.fetch_jars DIRECTORY COORDINATE...`: Spark's resolver, as a child process.

A process of its own, because the resolver prints what it likes, and because a session that has resolved
jars is not the session that pipelines should run in. The jars arrive in DIRECTORY/jars.
"""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession

from headrace.streams.java import find_java


def main(directory: str, *coordinates: str) -> None:
    """Resolve each coordinate by itself, without what it depends on."""
    os.environ["JAVA_HOME"] = str(find_java().home)
    session = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.jars.ivy", directory)
        .getOrCreate()
    )
    for coordinate in coordinates:
        session.sql(f"ADD JAR ivy://{coordinate}?transitive=false")
    session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
