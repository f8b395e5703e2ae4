"""Work queues over the log: the broker's logic without I/O, its journal, and AMQP 0-9-1 on the wire."""
