"""Event time: durations, and how far it is known to be complete. Pure: no Spark, no I/O."""
