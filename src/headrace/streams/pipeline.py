"""A pipeline: a function from DataFrames to a DataFrame, the topics that it reads, and what it writes.

The function stays what it is: calling the pipeline calls it, so a unit test hands it static DataFrames.
Each parameter is a topic that it reads, found by the parameter's name among the globals of the function's
module, unless `reads` says otherwise. Topics are looked up when the pipeline runs, not when it is defined,
so their order in the file does not matter.

A pipeline's name is its checkpoint, its consumer identity and its label. Changing it starts afresh.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Generic, ParamSpec

from headrace.config import TOPIC_NAME
from headrace.errors import HeadraceError, PipelineError
from headrace.streams.failure import first_line
from headrace.streams.stores import Table
from headrace.streams.time.durations import Duration, duration_us
from headrace.streams.topic import Topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

P = ParamSpec("P")
Target = Topic | Table
"""What a pipeline can write."""
PATIENCE_MS_MAX: Final = 5_000
"""A client may wait so long for an answer when it is told to stop: less than a run is given to end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline(Generic[P]):
    """A function from DataFrames to a DataFrame. Make one with `@pipeline(...)`."""

    name: str
    function: Callable[P, DataFrame]
    writes: Target
    reads: Mapping[str, Topic] = field(default_factory=dict)
    """Topics of parameters that are not to be looked up by name."""
    side_outputs: tuple[Topic, ...] = ()
    """Topics that rows can name in a column `_topic`, to be written there instead."""
    patience_ms: int = 0
    """How long its rows may lie in their topics, so that many are read at a time."""

    def __post_init__(self) -> None:
        if not TOPIC_NAME.fullmatch(self.name) or self.name in {".", ".."}:
            raise PipelineError(
                f"{self.name!r} can't name a pipeline: use 1 to 249 of the characters a-z A-Z 0-9 . _ -"
            )
        parameters = inspect.signature(self.function).parameters
        if not parameters:
            raise PipelineError(f"pipeline {self.name} has no parameter: each one is a topic that it reads")
        for parameter in parameters.values():
            if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}:
                raise PipelineError(
                    f"pipeline {self.name} takes {parameter}: name each topic that it reads as a parameter"
                )
        if self.side_outputs and not isinstance(self.writes, Topic):
            raise PipelineError(
                f"pipeline {self.name} writes the {self.writes.noun} {self.writes.name} and has side "
                "outputs: these can be written together with a topic only, so make a second pipeline for them"
            )
        outputs = [topic.name for topic in self.outputs]
        if len(set(outputs)) < len(outputs):
            raise PipelineError(
                f"pipeline {self.name} has one topic twice among those that it writes: {', '.join(outputs)}"
            )
        for name in self.reads:
            if name not in parameters:
                raise PipelineError(
                    f"pipeline {self.name}: reads has {name!r}; its parameters are {', '.join(parameters)}"
                )

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> DataFrame:
        """Call the function itself."""
        return self.function(*args, **kwargs)

    @property
    def outputs(self) -> tuple[Topic, ...]:
        """All topics that it writes."""
        return (*((self.writes,) if isinstance(self.writes, Topic) else ()), *self.side_outputs)

    def sources(self) -> dict[str, Topic]:
        """The topic of each parameter, in the order of the parameters."""
        return {name: self._source(name) for name in inspect.signature(self.function).parameters}

    def build(self, frames: Mapping[str, DataFrame]) -> DataFrame:
        """Call the function with a DataFrame for each parameter and check what comes back."""
        # Only to be called where Spark runs; the rest of this module works without it.
        from pyspark.errors import AnalysisException  # noqa: PLC0415
        from pyspark.sql import DataFrame as SparkDataFrame  # noqa: PLC0415

        parameters = inspect.signature(self.function).bind(**frames)
        try:
            result: object = self.function(*parameters.args, **parameters.kwargs)
        except (HeadraceError, AnalysisException):
            # These say by themselves what is wrong with the pipeline.
            raise
        except Exception as error:
            raise PipelineError(
                f"pipeline {self.name} failed at {self._place(error)}: {type(error).__name__}: "
                f"{first_line(error)}"
            ) from error
        if not isinstance(result, SparkDataFrame):
            raise PipelineError(
                f"pipeline {self.name} returned {type(result).__name__}: it must return a DataFrame"
            )
        return result

    def _place(self, error: Exception) -> str:
        """`FILE:LINE`: the innermost line of the function's own file that the error came through."""
        code = inspect.unwrap(self.function).__code__
        lines = [
            frame.lineno
            for frame in traceback.extract_tb(error.__traceback__)
            if frame.filename == code.co_filename
        ]
        return f"{code.co_filename}:{lines[-1] if lines else code.co_firstlineno}"

    def _source(self, parameter: str) -> Topic:
        if parameter in self.reads:
            return self.reads[parameter]
        module_globals = inspect.unwrap(self.function).__globals__
        found = module_globals.get(parameter)
        if isinstance(found, Topic):
            return found
        known = sorted(name for name, value in module_globals.items() if isinstance(value, Topic))
        problem = "names no topic" if found is None else f"names a {type(found).__name__}, not a topic"
        raise PipelineError(
            f"pipeline {self.name}: its parameter {parameter!r} {problem} of the module; write "
            f'{parameter} = hr.topic("...", schema="..."), or reads={{"{parameter}": topic}}'
            + (f" (topics here: {', '.join(known)})" if known else "")
        )


def pipeline(
    *,
    writes: Target,
    side_outputs: Sequence[Topic] = (),
    reads: Mapping[str, Topic] | None = None,
    name: str | None = None,
    patience: Duration | None = None,
) -> Callable[[Callable[P, DataFrame]], Pipeline[P]]:
    """Make a pipeline of a function whose parameters are the topics that it reads.

    A row whose column `_topic` names one of the `side_outputs` is written there instead.

    With `patience`, results may come about so much later, at most 5 seconds. Where nobody waits for them, it
    saves work that slows down the pipelines beside it: real-time mode reads many records at a time, in
    batches that are twice as long, and micro-batches begin no more often than that.
    """
    if not isinstance(writes, Target):
        raise PipelineError(
            f'writes is {writes!r}: write hr.topic("name", key="column"), or a table or another store'
        )
    for output in side_outputs:
        if not isinstance(output, Topic):
            raise PipelineError(f'side_outputs has {output!r}: write hr.topic("name", key="column")')
    for target in (writes, *side_outputs):
        if isinstance(target, Topic) and target.others:
            raise PipelineError(f"{', '.join(target.names)} are several topics: a row goes to one")
    patience_ms = _checked_patience_ms(patience)

    def decorate(function: Callable[P, DataFrame]) -> Pipeline[P]:
        return Pipeline(
            name=function.__name__ if name is None else name,
            function=function,
            writes=writes,
            reads=MappingProxyType(dict(reads or {})),
            side_outputs=tuple(side_outputs),
            patience_ms=patience_ms,
        )

    return decorate


def _checked_patience_ms(patience: Duration | None) -> int:
    if patience is None:
        return 0
    patience_ms = duration_us(patience, "patience") // 1_000
    if not 1 <= patience_ms <= PATIENCE_MS_MAX:
        raise PipelineError(
            f"patience is {patience!r}: use 1 millisecond to {PATIENCE_MS_MAX // 1_000} seconds"
        )
    return patience_ms
