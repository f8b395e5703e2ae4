"""What Spark's errors say, in the one line that matters.

A failed query carries a Java stack trace, the plan and the offsets. The first line says what happened:

    [CAST_INVALID_INPUT] The value '0x' of the type "STRING" cannot be cast to "INT" ... SQLSTATE: 22018

Of it, the code in front and the SQLSTATE behind are left out. Where a Python function on an executor has
raised something, it is the last line of its trace. Where Python could not even start there, what it said is
indented, between two lines of Spark's:

    Error from python worker:
      Traceback (most recent call last):
        File "<frozen site>", line 3, in <module>
      ModuleNotFoundError: No module named 'encodings'
    PYTHONPATH was:
"""

from __future__ import annotations

import re
from typing import Final

import headrace.errors
from headrace.errors import HeadraceError

_CODE: Final = re.compile(r"^\[[A-Z0-9_.]+\]\s*")
_STATE: Final = re.compile(r"\s*SQLSTATE: \w+\s*$")
_JAVA_CLASS: Final = re.compile(r"^(?:Caused by: )?(?:[a-z0-9_]+\.)+(?=[A-Z])")
_OURS: Final = re.compile(r"^headrace\.errors\.(\w+): (.*)$", re.MULTILINE)
_TRACE: Final = re.compile(r"(?:^(?P<indent> +))?Traceback \(most recent call last\):\n", re.MULTILINE)
_NOT_STARTED: Final = re.compile(r"Error from python worker:\n(?P<said>(?:[ \t].*\n|\n)*)PYTHONPATH was:")
_NOT_ALL_NAMED: Final = "If startingOffsets contains specific offsets, you must specify all TopicPartitions"
_NO_WORKER: Final = "Python worker failed to connect back"
_REFUSED: Final = re.compile(r"The operator\(s\): (.+?) is not in the operator allowlist")
_REFUSED_MODE: Final = re.compile(r"Streaming real-time mode has the following limitation: (.+)")

OPERATORS: Final = {
    "ArrowEvalPythonExec": "a Python function (UDF)",
    "BatchEvalPythonExec": "a Python function (UDF)",
    "FlatMapGroupsInPandasWithStateExec": "applyInPandasWithState",
    "MapInArrowExec": "mapInArrow",
    "MapInPandasExec": "mapInPandas",
    "PythonMapInArrowExec": "mapInArrow",
    "StreamingDeduplicateWithinWatermarkExec": "dropDuplicatesWithinWatermark",
    "StreamingSymmetricHashJoinExec": "a join of two streams",
    "TransformWithStateInPySparkExec": "transformWithState",
}
"""Operators that real-time mode refuses, by Spark's name, as a user writes them."""


def first_line(error: BaseException | str) -> str:
    """What happened, without codes, class names, traces and plans."""
    text = str(error).strip()
    line = _python_not_started(text) or _raised_in_python(text)
    if line is None:
        line = text.splitlines()[0] if text else type(error).__name__
    line = _JAVA_CLASS.sub("", line)
    return _STATE.sub("", _CODE.sub("", line)).rstrip(";").strip()


def _python_not_started(text: str) -> str | None:
    """Why an executor has no Python process."""
    found = _NOT_STARTED.search(text)
    if found is None:
        return None
    said = found["said"]
    why = _raised_in_python(said) or next((line.strip() for line in said.splitlines() if line.strip()), None)
    return f"Python could not start on an executor: {why or 'it said nothing'}"


def _raised_in_python(text: str) -> str | None:
    """What a Python function on an executor has raised: the line after those of its trace, indented less."""
    trace = _TRACE.search(text)
    if trace is None:
        return None
    indent = trace["indent"] or ""
    lines = (line.removeprefix(indent) for line in text[trace.end() :].splitlines())
    return next((line for line in lines if line and not line.startswith(" ")), None)


def headrace_error(error: BaseException | str) -> HeadraceError | None:
    """The error of ours that a Python function on an executor has raised; None where it was none of ours."""
    raised = _OURS.findall(str(error))
    if not raised:
        return None
    name, message = raised[-1]
    kind = getattr(headrace.errors, name, None)
    return kind(message) if isinstance(kind, type) and issubclass(kind, HeadraceError) else None


def passing_failure(error: BaseException | str) -> str | None:
    """Why a query failed, where that passes and it can be started again; None where it can't.

    A topic has partitions that the query's starts don't name; or Spark, which waits for 10 seconds, has given
    up on a Python process that a busy machine was slow to start.
    """
    text = str(error)
    if _NOT_ALL_NAMED in text:
        return "a topic that it reads has got more partitions while it started"
    if _NO_WORKER in text:
        return "Spark has given up on a Python process that was slow to start: the machine is busy"
    return None


def realtime_refusal(error: BaseException | str) -> str | None:
    """Why real-time mode would not run it, in a user's words; None when it is not about that."""
    line = first_line(error)
    if operators := _REFUSED.search(line):
        names = [name.rpartition(".")[2] for name in re.split(r"[,\s]+", operators[1])]
        return f"it uses {', '.join(OPERATORS.get(name, name) for name in names)}"
    limitation = _REFUSED_MODE.search(line)
    return limitation[1].rstrip(".") if limitation else None
