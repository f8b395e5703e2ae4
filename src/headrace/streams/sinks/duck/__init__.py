"""Write batches to a table in a file of DuckDB, exactly once.

- columns      which type a column gets, and which it fits
- connection   the file, opened for as long as it is needed, and DuckDB's errors in our own words
- statements   by which rows get into a table
- ledger       what was written, in the same file
- applier      the driver's side
- read, swap   rows as a DataFrame, and rows that take the place of others
"""
