"""The Kafka protocol over `headrace.log`.

| module | responsibility |
|---|---|
| `codec/` | bytes of a frame <-> version-independent requests and responses |
| `connection` | a byte stream -> request frames, and answers in the order of their requests; no I/O |
| `api` | which APIs and versions are offered, and who handles them |
| `handlers/` | one file per API: what a request means |
| `groups/` | consumer groups and their offsets, as pure logic |
| `services` | what handlers work with: the log, the clock, who waits for what |
| `server` | the only module that opens sockets |
"""

import headrace.kafka.codec.kio_alone  # noqa: F401  # before anything else can load kio
