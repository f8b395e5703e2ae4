"""Write batches to a search index in a directory, exactly once."""
