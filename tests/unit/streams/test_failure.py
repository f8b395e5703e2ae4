"""Spark's errors, told in one line."""

from __future__ import annotations

import pytest

from headrace.errors import BrokerUnavailable
from headrace.streams.failure import first_line, headrace_error, passing_failure, realtime_refusal

REFUSAL = (
    "[STREAMING_REAL_TIME_MODE.OPERATOR_OR_SINK_NOT_IN_ALLOWLIST] Streaming real-time mode has the following "
    "limitation: The operator(s): {} is not in the operator allowlist for Real-Time Mode. To bypass this "
    "check, set spark.sql.streaming.realTimeMode.allowlistCheck to false. SQLSTATE: 0A000\n=== Query ===\n"
)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "[CAST_INVALID_INPUT] The value 'x' cannot be cast. SQLSTATE: 22018\n== SQL ==\n^^^\n",
            "The value 'x' cannot be cast.",
        ),
        (
            "Sorting is not supported on streaming DataFrames;\n~Sort [value#1]",
            "Sorting is not supported on streaming DataFrames",
        ),
        (
            "org.apache.kafka.common.errors.TimeoutException: Timed out waiting for a node\n\tat x.y.Z",
            "TimeoutException: Timed out waiting for a node",
        ),
        ("  \n", "str"),
    ],
)
def test_the_first_line_is_told_without_codes_and_traces(text: str, line: str) -> None:
    assert first_line(text) == line


NOT_STARTED = """Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times, most recent failure: \
Lost task 0.0 in stage 1.0 (TID 1) (127.0.0.1 executor driver): org.apache.spark.SparkException: \

Error from python worker:
{}
PYTHONPATH was:
  /spark/python:/spark/core.jar
org.apache.spark.SparkException: EOFException occurred while reading the port number from pyspark.daemon
\tat org.apache.spark.api.python.PythonWorkerFactory
"""
SITE = """  Fatal Python error: init_import_site: Failed to import the site module

  Traceback (most recent call last):
    File "<frozen site>", line 3, in <module>
      import os
  ModuleNotFoundError: No module named 'os'
  """


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        ("  /usr/bin/python3: No module named pyspark", "/usr/bin/python3: No module named pyspark"),
        (SITE, "ModuleNotFoundError: No module named 'os'"),
        ("  ", "it said nothing"),
    ],
)
def test_why_python_could_not_start_is_told(said: str, cause: str) -> None:
    assert first_line(NOT_STARTED.format(said)) == f"Python could not start on an executor: {cause}"


def test_an_error_without_words_is_told_by_its_name() -> None:
    assert first_line(ZeroDivisionError()) == "ZeroDivisionError"


@pytest.mark.parametrize(
    ("operator", "words"),
    [
        ("org.apache.spark.sql.execution.python.ArrowEvalPythonExec", "a Python function (UDF)"),
        ("a.b.StreamingSymmetricHashJoinExec, a.b.MapInPandasExec", "a join of two streams, mapInPandas"),
        ("a.b.SomethingNewExec", "SomethingNewExec"),
    ],
)
def test_what_real_time_mode_refuses_is_told_in_the_users_words(operator: str, words: str) -> None:
    assert realtime_refusal(REFUSAL.format(operator)) == f"it uses {words}"


def test_another_limitation_of_real_time_mode_is_told_as_spark_tells_it() -> None:
    text = "[X.Y] Streaming real-time mode has the following limitation: The output mode must be update."

    assert realtime_refusal(text) == "The output mode must be update"


def test_other_errors_are_no_refusal() -> None:
    assert realtime_refusal("[CAST_INVALID_INPUT] no") is None


def test_an_error_of_ours_that_a_task_has_raised_is_found_in_what_spark_says() -> None:
    told = """An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "worker.py", line 1, in main
headrace.errors.BrokerUnavailable: pipeline copies can't write: no broker answers (timed out)
"""
    error = headrace_error(told)
    assert isinstance(error, BrokerUnavailable)
    assert str(error) == "pipeline copies can't write: no broker answers (timed out)"


@pytest.mark.parametrize("told", ["", "ValueError: no", "headrace.errors.NoSuchError: no"])
def test_an_error_of_somebody_else_is_none_of_ours(told: str) -> None:
    assert headrace_error(told) is None


def test_what_a_python_function_has_raised_is_told_without_its_trace() -> None:
    told = """[PYTHON_EXCEPTION] An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "pipelines.py", line 7, in louder
    return text.upper()
           ^^^^^^^^^^
AttributeError: 'NoneType' object has no attribute 'upper'

\tat org.apache.spark.api.python.BasePythonRunner
"""
    assert first_line(told) == "AttributeError: 'NoneType' object has no attribute 'upper'"


def test_a_trace_may_begin_behind_the_name_of_an_exception_of_javas() -> None:
    told = """Task 0 failed: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "pipelines.py", line 7, in louder
ValueError: too loud
"""
    assert first_line(told) == "ValueError: too loud"


def test_a_python_process_that_was_slow_to_start_is_told_from_what_failed_in_one() -> None:
    ended = "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: {} SQLSTATE: XXKST"
    reason = passing_failure(ended.format("Python worker failed to connect back."))
    assert reason is not None
    assert "slow to start" in reason
    assert passing_failure(ended.format("Python worker exited unexpectedly (crashed)")) is None


def test_a_topic_that_has_grown_is_a_failure_that_passes() -> None:
    told = "If startingOffsets contains specific offsets, you must specify all TopicPartitions."
    assert "more partitions" in (passing_failure(f"java.lang.AssertionError: {told} Use -1") or "")
