"""Requests and responses as version-independent values, one file per API.

Each class holds the fields of all versions of its message, under Kafka's own names. A field that some
versions lack has the default that Kafka's schema gives it. In a response, a tagged field is None unless it
is to be sent. `headrace.kafka.codec` reads and writes them.
"""
