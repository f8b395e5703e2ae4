"""Write batches to a table of PostgreSQL, exactly once."""
