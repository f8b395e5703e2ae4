"""What Spark's Java process is started with, beside settings of Spark. No I/O."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

_COMPILED_AFTER: Final = {
    "Tier4InvocationThreshold": 25_000,
    "Tier4MinInvocationThreshold": 3_000,
    "Tier4CompileThreshold": 75_000,
    "Tier4BackEdgeThreshold": 200_000,
}
"""How often code must have run before Java compiles it a second time, to the best that it can: five times as
often as by default. Small batches call much of Spark now and then, and compiling all that took a quarter of
the processor for minutes. Code that works on rows gets there with the first thousands of them."""
_COLLECTOR: Final = "-XX:+UseParallelGC"
"""How micro-batches have Java collect garbage. Its usual choice, G1, does most of that beside the program,
which pays for it with each reference that it writes; Spark's planning writes little else: small batches took
an eighth longer. This one stops the program now and then instead, for tenths of a second where much is kept:
real-time mode, in which somebody waits for milliseconds, has Java's choice."""
_COLLECTOR_CHOICE: Final = re.compile(r"-XX:[+-]?(Use\w*GC\b|G1|Z[A-Z]|Shenandoah)")
"""Also what is said to one of them."""
_LOG_PROPERTIES: Final = Path(__file__).with_name("log4j2.properties")


def java_options(*, log: Path, work_dir: Path, realtime: bool, chosen: str) -> list[str]:
    """The options. `chosen` are those that a user gives: Java takes one choice of a collector only."""
    return [
        f'"-Dlog4j2.configurationFile={_LOG_PROPERTIES.as_uri()}"',
        f'"-Dheadrace.log.file={log.absolute()}"',
        f'"-Djava.io.tmpdir={work_dir}"',
        *(f"-XX:{flag}={count}" for flag, count in _COMPILED_AFTER.items()),
        *(() if realtime or _COLLECTOR_CHOICE.search(chosen) else (_COLLECTOR,)),
    ]
