"""Write batches to a Delta table, exactly once."""
