"""Write batches to a hash of Redis, exactly once.

- fields       the field that a key has
- values       rows as JSON, and back
- connection   connections, and Redis's errors in our own words
- state        what the ledger says, and what follows from it; no I/O
- ledger       the ledger's key in Redis
- calls        rows put together to calls of a script
- task         what a task writes
- writer       the driver's side
- read, swap   rows as a DataFrame, and rows that take the place of others
"""
