"""Append-only partitions on disk, in Kafka's own record-batch format."""
