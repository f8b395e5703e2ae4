"""The Kafka protocol over `headrace.log`.

| module | responsibility |
|---|---|
| `codec/`, `messages/` | bytes of a frame <-> version-independent requests and responses |
| `connection` | a byte stream -> request frames, and answers in the order of their requests; no I/O |
| `client_connection`, `open_connections`, `budget` | a client's connection; how many, how much |
| `api`, `dispatch` | which APIs and versions are offered, and who handles them |
| `handlers/` | one file per API or family of APIs: what a request means |
| `groups/` | consumer groups and share groups, as pure logic; `consumer_groups` has it at work |
| `transactions/` | the transaction coordinator, as pure logic; `producer_transactions` has it at work |
| `transaction_log`, `transaction_markers` | the topic that keeps transactions; how they end in partitions |
| `fetch_sessions`, `fetch_reading`, `watchers` | what fetches remember, read and wait for |
| `topic_changes`, `config_changes`, `settings` | topics and settings that change while the broker runs |
| `commit`, `sync_threads`, `disk_thread`, `checkpoints` | how the event loop never waits for the disk |
| `security/` | SASL, TLS, the file of users |
| `metrics/` | numbers and health over HTTP; its `server` opens the port for them |
| `services` | what handlers work with: the log, the clock, who waits for what |
| `engine` | all of it wired together, without sockets and threads |
| `server` | the sockets and threads around the engine |
"""

import headrace.kafka.codec.kio_alone  # noqa: F401  # before anything else can load kio
