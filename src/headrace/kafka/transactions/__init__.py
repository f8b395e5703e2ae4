"""Transactions, as pure logic.

                          ┌─────────────── the next transaction ───────────────┐
                          v                                                    │
    EMPTY ──a partition──> ONGOING ──EndTxn──> PREPARE_COMMIT ──markers──> COMPLETE_COMMIT
                             │
                             └── EndTxn, a time-out, a new producer
                                       └─────> PREPARE_ABORT ───markers──> COMPLETE_ABORT

A transactional id stands for one producer across restarts; the coordinator gives it a producer id and an
epoch. Rules:

1. The outcome is decided by the record that says PREPARE: once it is durable, the transaction has that
   outcome, whatever happens. Markers are written into its partitions after that and not before, and the
   record that says COMPLETE after all of them are durable. A crash between is finished at the next start.
2. A producer that comes with the same transactional id gets the next epoch, and whatever the one before it
   left open is aborted first. An older epoch is refused everywhere: by the coordinator, and by each
   partition, to which markers carry the epoch.
3. Every record of a transaction lies in a partition that the coordinator knew before: the record that adds
   a partition is durable before anything is appended there. So no transaction can be left open for ever.
4. By the second version of the protocol (TV2, KIP-890) each end raises the epoch, so that a request of one
   transaction which arrives late can't touch the next one, and partitions are added by producing to them.
   By the first version (TV1) a producer adds partitions itself and keeps its epoch. Which one a request is
   of, its version tells; both can use the same broker.

`TransactionCoordinator.handle_*` change nothing and return records and an answer; `apply` is the only
mutation, and recovery does nothing else. The records are those of the topic `__transaction_state`, in
Kafka's own format.
"""
