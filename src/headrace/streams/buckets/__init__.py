"""Operators with keyed state: all keys are spread over buckets, and each bucket steps as a whole.

`logic` says what an operator is, apart from Spark. The rest of the package runs it on Spark.
"""
