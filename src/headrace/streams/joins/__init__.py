"""Joins of two streams, and of a stream with a table: what they compute, apart from Spark."""
