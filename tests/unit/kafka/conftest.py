"""Properties take as long as a busy machine needs: a slow example is not a wrong one."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("kafka", deadline=None)
settings.load_profile("kafka")
