"""The Spark session that pipelines run in.

Real-time mode runs all stages of all queries at once, each task holding a slot for as long as the query
lives: one too few, and a query waits for ever. Locally the session is therefore made with as many slots as
the queries need, whatever the number of cores; an idle slot costs nothing.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from py4j import java_gateway
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from headrace.config import StreamsConfig, java_options_of_environment
from headrace.streams.class_archive import archive_digest, find_archive, use_options
from headrace.streams.gateway import end_java, java_beside, kill_java, launch_java
from headrace.streams.jars import find_checkpoint_jar, resolve_jars
from headrace.streams.java import Java, find_java
from headrace.streams.java_options import java_options
from headrace.streams.spark_options import with_options_of_user
from headrace.streams.workspace import workspace

SHUFFLE_WAIT_MS: Final = 2
"""How long real-time mode may hold a row back after a shuffle to send more at once. Spark's 50 is felt."""
STOP_S_MAX: Final = 8.0
"""How long all queries and Spark may take to stop, which they don't while they wait for a broker that is
gone. After that Java is killed, which costs no more than the open batches: they are run again."""
QUERY_STOP_S_MAX: Final = 10
"""How long one query may take to stop where nothing else sets it a limit."""
SOCKET_DIR_BYTES_MAX: Final = 60
"""How long the name of a directory with sockets may be: theirs have some 45 bytes, and 107 are allowed."""
JAVA_GONE: Final = (Py4JError, PySparkException, OSError)
"""What calls to Spark raise when its Java process has ended, or is about to."""

_GATEWAY_FILE: Final[str] = java_gateway.__file__
_JAVA_OPTION_KEYS: Final = ("spark.driver.extraJavaOptions", "spark.driver.defaultJavaOptions")
_LOOPBACK_MASTERS: Final = ("spark://127.0.0.1:", "spark://localhost:")


def log_path(config: StreamsConfig) -> Path:
    """Where Spark's own log is written: warnings, errors and their stack traces."""
    return config.data_dir / "logs" / "spark.log"


def java_log_path(config: StreamsConfig) -> Path:
    """Where Java's own words go, which it says before Spark has a log."""
    return log_path(config).with_name("java.log")


def start_session(
    config: StreamsConfig,
    *,
    slots: int,
    work_dir: Path,
    name: str = "headrace",
    archived: bool = True,
    realtime: bool = False,
) -> SparkSession:
    """Start Spark, with Java and the connector jars found first. `slots` counts for a local master only.

    `archived` says whether to use an archive of classes where there is one. In `realtime` mode, Java collects
    garbage in another way: see java_options.py.
    """
    jars = find_jars(config)
    if not archived:
        jars = replace(jars, archive=None)
    options = session_options(config, slots=slots, jars=jars, work_dir=work_dir, realtime=realtime)
    launch_java(options, java_log_path(config))
    builder: SparkSession.Builder = SparkSession.builder
    for key, value in options.items():
        builder = builder.config(key, value)
    return builder.appName(name).getOrCreate()


@contextmanager
def java_ahead(config: StreamsConfig, *, realtime: bool) -> Iterator[None]:
    """Start Java for a session that will be wanted, while something else is done."""
    with workspace(config.data_dir) as work_dir:
        options = session_options(
            config, slots=1, jars=find_jars(config), work_dir=work_dir, realtime=realtime
        )
        with java_beside(options, java_log_path(config)):
            yield


@dataclass(frozen=True, slots=True, kw_only=True)
class Jars:
    """The jars that a session is given."""

    connector: Sequence[Path]
    checkpoint: Path | None = None
    archive: Path | None = None
    """An archive of classes that were loaded from these jars, and from Spark's own."""


def find_jars(config: StreamsConfig) -> Jars:
    """Find Java and the jars, fetching what is missing, and have Spark's processes find Java and Python."""
    java = find_java()
    os.environ["JAVA_HOME"] = str(java.home)
    # Python functions must run in this interpreter, not in whatever python3 is on PATH.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    keep_traces_of_java_quiet()
    connector = resolve_jars(config.cache_dir, config.jars_dir)
    checkpoint = find_checkpoint_jar(config.cache_dir, config.jars_dir)
    archive = find_archive(config.cache_dir, archive_digest(java, _on_class_path(checkpoint)))
    return Jars(connector=connector, checkpoint=checkpoint, archive=archive)


def keep_traces_of_java_quiet() -> None:
    """Keep PySpark from printing traces: what has failed, and why, is told in a sentence."""
    # The trace of a failed query, as one line of JSON.
    PySparkLogger.getLogger("DataFrameQueryContextLogger").setLevel(logging.CRITICAL)
    # That of a batch that failed in Python.
    logging.getLogger("py4j.clientserver").setLevel(logging.CRITICAL)
    # That of a call to a Java that is gone, for which there is no logger but the root. Of a logger's records,
    # its filter sees only those that it was given itself.
    logging.getLogger().addFilter(_is_not_of_gateway)


def _is_not_of_gateway(record: logging.LogRecord) -> bool:
    return record.pathname != _GATEWAY_FILE


def class_archive_digest(config: StreamsConfig, java: Java) -> str:
    """Which archive of classes belongs to sessions on this machine."""
    return archive_digest(java, _on_class_path(find_checkpoint_jar(config.cache_dir, config.jars_dir)))


def _on_class_path(checkpoint: Path | None) -> list[Path]:
    """Of our jars, only this one is there from the start."""
    return [] if checkpoint is None else [checkpoint]


def session_options(
    config: StreamsConfig, *, slots: int, jars: Jars, work_dir: Path, realtime: bool = False
) -> dict[str, str]:
    """What the session is started with."""
    is_local = (config.master or "local").startswith("local")
    own = " ".join(config.spark_options.get(key, "") for key in _JAVA_OPTION_KEYS)
    of_java = [
        *java_options(
            log=log_path(config),
            work_dir=work_dir,
            realtime=realtime,
            chosen=f"{own} {java_options_of_environment()}",
        ),
        # The class path is another one where the jar for checkpoints is not used.
        *(use_options(jars.archive) if is_local and jars.archive is not None else ()),
    ]
    options = {
        "spark.master": config.master or f"local[{slots}]",
        "spark.jars": ",".join(str(path) for path in jars.connector),
        "spark.driver.extraJavaOptions": " ".join(of_java),
        "spark.local.dir": str(work_dir),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(config.shuffle_partition_count),
        # Else a handful of static rows would be spread over all slots, a task for each.
        "spark.default.parallelism": str(config.shuffle_partition_count),
        # The only state store that real-time mode runs with.
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        # The only format that it writes; so that a checkpoint of micro-batches can go on in real-time mode.
        "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
        # A batch then writes what has changed in the state, and not files of its database.
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.streaming.stopTimeout": f"{QUERY_STOP_S_MAX}s",
        "spark.shuffle.streaming.networkBufferMaxWaitTimeMs": str(SHUFFLE_WAIT_MS),
        # Nothing is ever kept in a warehouse; this keeps Spark from looking in the current directory.
        "spark.sql.warehouse.dir": str(work_dir / "warehouse"),
        "spark.sql.catalogImplementation": "in-memory",
    }
    master = config.master or "local"
    if master.startswith(("local", *_LOOPBACK_MASTERS)):
        # Nobody outside this machine has any business with the driver.
        options |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    if is_local:
        # The machines of a cluster may not have the jar, and must all see checkpoints in the same way.
        options |= _cheap_checkpoints(jars.checkpoint) | _quick_workers(work_dir)
    return with_options_of_user(options, config.spark_options)


def _cheap_checkpoints(jar: Path | None) -> dict[str, str]:
    """Write checkpoints without a process that is forked for each file. See jars.py."""
    if jar is None:
        return {}
    return {
        # It is wanted before `spark.jars` are loaded.
        "spark.driver.extraClassPath": str(jar),
        "spark.hadoop.fs.file.impl": "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem",
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
        ),
    }


def _quick_workers(work_dir: Path) -> dict[str, str]:
    """Talk to Python processes by sockets that are files, which nobody else may open.

    By the others, Spark sends little things one after the other, and TCP holds the second back until the
    first is acknowledged: 40 ms, for each task. Not where the name of the directory has capitals: stateful
    workers of Spark 4.3 are told it in small letters, and would not find their socket.
    """
    name = str(work_dir)
    if len(os.fsencode(name)) > SOCKET_DIR_BYTES_MAX or name != name.lower():
        return {}
    return {
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": name,
    }


def stop_session(session: SparkSession) -> None:
    """Stop all queries and Spark, and wait until Java is gone: STOP_S_MAX and JAVA_EXIT_S_MAX at most.

    Stopping twice does no harm.
    """
    if session.sparkContext._jsc is None:  # noqa: SLF001 - there is no public way to ask
        return
    # In a thread of its own: a call to Java that does not return can't be given up otherwise.
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="stop-spark") as stopping:
        stopped = stopping.submit(_stop, session)
        wait([stopped], STOP_S_MAX)
        if not stopped.done():
            kill_java()
        try:
            stopped.result()
        except JAVA_GONE:
            # Java was killed, has crashed or was told to stop as well: there is only its process left.
            SparkContext._active_spark_context = None  # noqa: SLF001 - so that a later session is a new one
    end_java()


def _stop(session: SparkSession) -> None:
    # A query that is stopped in mid-batch logs its broken-off tasks as errors.
    session.sparkContext.setLogLevel("OFF")
    for query in session.streams.active:
        query.stop()
    session.stop()
