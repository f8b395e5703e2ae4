"""Load the pipelines of a file: `FILE`, or `FILE:NAME` for one of them.

A file of Python has functions that are marked as pipelines. One of SQL has views, each of which is a
pipeline; so has a directory of such files.
"""

from __future__ import annotations

import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from pyspark import cloudpickle

from headrace.errors import HeadraceError, PipelineError
from headrace.streams.pipeline import Pipeline
from headrace.streams.sql.store import load_tables, load_views
from headrace.streams.sql.view_pipeline import pipeline_of
from headrace.streams.topic import Topic


def load_pipelines(target: str) -> list[Pipeline[Any]]:
    """The pipelines that the file defines or imports, in their order, or the one that is named."""
    path, name = split_target(target)
    pipelines = _views_of(path) if _is_sql(path) else _pipelines_of(_load(path))
    if not pipelines:
        advice = "write CREATE VIEW" if _is_sql(path) else "mark a function with @hr.pipeline(writes=...)"
        raise PipelineError(f"{path} has no pipeline: {advice}")
    if name is None:
        return pipelines
    chosen = [pipeline for pipeline in pipelines if pipeline.name == name]
    if not chosen:
        known = ", ".join(pipeline.name for pipeline in pipelines)
        raise PipelineError(f"{path} has no pipeline {name!r}: it has {known}")
    return chosen


def split_target(target: str) -> tuple[Path, str | None]:
    """The file and, where one is named, the pipeline."""
    path, colon, name = target.rpartition(":")
    if not colon:
        return Path(target), None
    if not path or not name:
        raise PipelineError(f"{target!r} names no pipeline: write FILE or FILE:PIPELINE")
    return Path(path), name


def load_topics(path: Path) -> dict[str, Topic]:
    """The topics that the file describes, each by itself: by its name, or by that of its table in SQL."""
    if _is_sql(path):
        return {table.name: table.topic for table in load_tables(path) if not table.is_dead_letters}
    module = _load(path)
    found = [value for value in vars(module).values() if isinstance(value, Topic)]
    for pipeline in _pipelines_of(module):
        found += [*pipeline.sources().values(), *pipeline.outputs]
    # Those that say nothing of their columns are for writing.
    described = (topic for topic in found if topic.schema is not None or topic.format != "json")
    return {each.name: each for topic in described for each in topic.each()}


def _is_sql(path: Path) -> bool:
    return path.is_dir() or path.suffix == ".sql"


def _views_of(path: Path) -> list[Pipeline[Any]]:
    if not path.exists():
        raise PipelineError(f"there is no file {path}: write FILE or FILE:PIPELINE")
    files = sorted(path.glob("*.sql")) if path.is_dir() else [path]
    return [pipeline_of(view) for file in files for view in load_views(file)]


def _pipelines_of(module: ModuleType) -> list[Pipeline[Any]]:
    found = [value for value in vars(module).values() if isinstance(value, Pipeline)]
    return list({id(pipeline): pipeline for pipeline in found}.values())


def _load(path: Path) -> ModuleType:
    if not path.is_file():
        raise PipelineError(f"there is no file {path}: write FILE or FILE:PIPELINE")
    spec = importlib.util.spec_from_file_location(f"headrace_pipelines_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise PipelineError(f"{path} is not a Python file: its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    # The file may import its neighbours, as it could if Python had been started with it.
    sys.path.insert(0, str(path.parent.absolute()))
    try:
        spec.loader.exec_module(module)
    except HeadraceError as error:
        raise PipelineError(f"{_place(path, error)}{error}") from error
    except Exception as error:
        # A syntax error's text repeats where it is.
        told = error.msg if isinstance(error, SyntaxError) else error
        raise PipelineError(f"{_place(path, error)}{type(error).__name__}: {told}") from error
    _send_to_workers(path.parent.absolute())
    return module


def _send_to_workers(directory: Path) -> None:
    """Let Spark's Python workers have the functions of the file and of its neighbours.

    By default a function travels as its module's name, and a worker could not import these modules.
    """
    for module in list(sys.modules.values()):
        origin = getattr(module, "__file__", None)
        if origin is not None and Path(origin).parent == directory:
            cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call] # it has no types


def _place(path: Path, error: Exception) -> str:
    """`FILE, line 12: `: the innermost line of the file itself that the error came through."""
    if isinstance(error, SyntaxError) and error.lineno is not None:
        return f"{error.filename}, line {error.lineno}: "
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).absolute() == path.absolute()
    ]
    return f"{path}, line {lines[-1]}: " if lines else f"{path}: "
