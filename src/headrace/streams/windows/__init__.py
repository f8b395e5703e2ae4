"""Windows, triggers, late rows and aggregates as pure functions of Arrow tables. No Spark, no I/O."""
