"""What works with queues from outside, by AMQP 0-9-1 only: on the embedded server and on RabbitMQ alike.

| module | responsibility |
|---|---|
| `connection`, `channel` | pika's asynchronous client as coroutines: answers, confirms, transactions |
| `delivery` | a message that was taken out of a queue |
| `deaths` | why a message was dead-lettered, and what it was before; pure |
| `dead_letters` | puts a message that can't be delivered where it can be found, with the cause |
| `redrive` | moves dead letters back; `redrive_filter` says which |
| `listing` | what is in the queues, as far as a server tells |
| `bridge/` | from queues to topics and from topics to queues |
| `push/` | from a queue to a URL, by HTTP POST |
"""
