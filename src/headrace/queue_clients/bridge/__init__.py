"""Bridges: what is in a queue becomes history, and what is in a topic becomes work.

| module | responsibility |
|---|---|
| `records` | a message as a record, and a record as a message; pure |
| `remembered` | the ids of what was handed over, in bounded space; pure |
| `position` | how far a topic was handed over; pure |
| `topic_writer` | writes messages and their ids to Kafka in one transaction |
| `topic_reader` | reads a topic from a position on |
| `to_topic` | from a queue to a topic |
| `to_queue` | from a topic to a queue |
"""
