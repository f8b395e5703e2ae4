"""Change data capture: from PostgreSQL's replication stream to topics in Debezium's event format.

The way of a change, each step in a file of its own; none of them but spill.py touches the world:

    bytes of pgoutput ─▶ transactions.Transactions ─▶ rows.ChangeWriter ─▶ Record(topic, key, value, headers)
                         whole ones, in the order      keys, TOAST,         for a topic
                         of their commits              envelopes, outbox
"""
