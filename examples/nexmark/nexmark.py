"""The 23 queries of Nexmark, each a pipeline.

headrace run examples/nexmark/nexmark.py:q4     # one of them
headrace run examples/nexmark/nexmark.py        # all at once
"""

from __future__ import annotations

from typing import Any

from headrace.streams import Pipeline
from nexmark_rows import q0, q1, q2, q10, q13, q14, q21, q22
from nexmark_tables import q3, q4, q6, q9, q15, q16, q17, q18, q19, q20
from nexmark_windows import q5, q7, q8, q11, q12

QUERIES: tuple[Pipeline[Any], ...] = (
    *(q0, q1, q2, q3, q4, q5, q6, q7, q8, q9, q10, q11),
    *(q12, q13, q14, q15, q16, q17, q18, q19, q20, q21, q22),
)
"""In their order."""
