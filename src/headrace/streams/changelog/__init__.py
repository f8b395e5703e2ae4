"""Changelogs, apart from Spark: tables that change, as rows with weights.

A changelog is a Z-set: rows with a weight, +1 for a row that comes and -1 for one that goes. An update is
both. The table at a moment is the sum of all changes up to it. Operators take changes and give changes, such
that the sum of what they give is always what the operator makes of the sum of what they took.

    _weight       +1 or -1
    _changed_at   when the change happened; where a change follows from several, the newest of them

`_changed_at` is told with a change and is no part of the row: a row that goes is the one that came, whenever
that was.

Within a micro-batch changes are added up before anything is made of them, so that the order in which they
came together does not show, and no half of an update is ever given.
"""
