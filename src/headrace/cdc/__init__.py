"""Change data capture: from PostgreSQL's replication stream to topics in Debezium's event format.

The way of a change, each step in a file of its own; none of them but spill.py touches the world:

    bytes of pgoutput ─▶ transactions.Transactions ─▶ rows.ChangeWriter ─▶ Record(topic, key, value, headers)
                         whole ones, in the order      keys, TOAST,         for a topic
                         of their commits              envelopes, outbox

Around it, what does touch the world:

    replication, slots, connection    the stream, and what the database keeps for it
    database_catalog                  types, keys, and what tables look like now
    snapshot, incremental             rows: as they were when the slot was made, and beside the stream
    publisher, topics                 events and position, in one Kafka transaction
    beginning, streaming, capture     a run of a capture; lock, pause and requests are how others reach it
    captures, status, removal         what is written down of captures

Pure again are slot (may a capture go on?), state (what is published), watermark (which rows were overtaken),
chunks (queries and copied rows) and marking.
"""
