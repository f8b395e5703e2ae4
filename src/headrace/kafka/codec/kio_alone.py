"""Loads kio without hypothesis, where that is installed too.

kio offers its types to hypothesis as soon as both are there. Loading hypothesis for that takes longer than a
broker needs to start, and only tests want it; a program that has loaded it already loses nothing.
"""

from __future__ import annotations

import sys

if "hypothesis" not in sys.modules:
    # What is None here can't be imported: that is Python's own way to say so.
    sys.modules["hypothesis"] = None  # type: ignore[assignment]
    try:
        import kio.static.primitive  # noqa: F401
    finally:
        del sys.modules["hypothesis"]
